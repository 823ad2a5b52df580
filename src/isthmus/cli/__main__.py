"""`python -m isthmus.cli`."""

from . import main

main()
