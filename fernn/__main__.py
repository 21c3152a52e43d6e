"""`python -m fernn`."""

from fernn.cli import main

main()
