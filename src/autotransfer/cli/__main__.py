"""python -m autotransfer.cli: the command line."""

from . import main

main()
