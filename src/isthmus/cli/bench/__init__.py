"""`isthmus bench`: experiments that people can repeat.

Here belong reading tables and instances, running methods over them, and writing what was found. What is measured is
elsewhere (`scheduling`).
"""
