"""Write the tables and figures of docs/results.md and docs/leaderboard.md from the committed tables of scores.

    python -m benchmarks.results [FOLDER] [--page FILE ...]

FOLDER (default: docs/results) holds the CSV files. In each page the text between `<!-- results: NAME -->` and
`<!-- end -->` is replaced; all other text stays. Figures are written into FOLDER.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from . import confirmation, field_tables, leaderboard
from .anytime import limit_costs
from .default_runs import default_runs_table
from .first_stage import first_stage_table

DOCS = Path(__file__).parent.parent / "docs"
PART = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS: dict[str, Callable[[Path], str]] = {
    **confirmation.PARTS,
    **field_tables.PARTS,
    "leaderboard": leaderboard.format_page,
    "default_runs": default_runs_table,
    "limit_costs": limit_costs,
    "first_stage": first_stage_table,
}


def fill(page: str, folder: Path) -> str:
    """Return the page with every marked part replaced."""
    return PART.sub(lambda marked: marked[1] + PARTS[marked[2]](folder) + marked[3], page)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DOCS / "results")
    parser.add_argument("--page", type=Path, nargs="+", default=[DOCS / "results.md", DOCS / "leaderboard.md"])
    options = parser.parse_args(arguments)
    for page in options.page:
        page.write_text(fill(page.read_text(encoding="utf-8"), options.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
