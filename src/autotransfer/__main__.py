"""The entry point of the command line, which imports little, so that Ctrl-C is handled from the start."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import and run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nohup and schedulers may ignore SIGINT
        signal.signal(signal.SIGINT, _exit)
    from .cli import main as run_command_line

    run_command_line()


def _exit(number: int, _: object) -> None:
    """End the program during imports, which do not expect exceptions."""
    os.write(2, b"autotransfer: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
