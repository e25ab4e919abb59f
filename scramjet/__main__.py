"""`python -m scramjet`."""

from scramjet.cli import main

main()
