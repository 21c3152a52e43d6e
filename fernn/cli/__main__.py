"""`python -m fernn.cli`."""

from fernn.cli import main

main()
