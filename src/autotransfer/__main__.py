"""python -m autotransfer: the command line."""

from .cli import main

main()
