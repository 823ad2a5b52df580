"""Where files live: the contract (`base`) and one module per place. Belongs here: bytes. Does not: jobs.

`directory` keeps contents in a folder, `trees` hands folders to engines and takes them back, `packs` is the tar
form in which many contents travel at once.
"""
