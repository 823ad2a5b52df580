"""Container images: how they are named and read, and how their layers become a folder that a job can run in.

What is here knows no engine and no site. `layers`, `tar_streams` and `unpacking` use the standard library only: they
also run where Isthmus is not installed. Everything that an image says is hostile.
"""
