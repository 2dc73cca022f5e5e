"""Run the command line with `python -m autotransfer`."""

from .cli import main

main()
