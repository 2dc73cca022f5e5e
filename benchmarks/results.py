"""Write the tables, figures and numbers of README and of the pages on results from the committed tables of scores.

    python -m benchmarks.results [FOLDER] [--page FILE ...]

FOLDER (default: docs/results) holds the CSV files. In each page the text between `<!-- results: NAME -->` and
`<!-- end -->` is replaced; all other text stays. Figures are written into FOLDER.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from . import confirmation, field_tables, leaderboard, penalties
from .cases import cases_table, five_label_outliers, signals_table
from .data_sheets import data_sheets_table
from .default_runs import describe_versions, format_table
from .evidence import read_scores
from .online import gains_table
from .training_sets import describe

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGE_NAMES = ("results", "leaderboard", "data_sheets", "online", "negative_result", "methods_note")
PAGES = [ROOT / "README.md", *(DOCS / f"{name}.md" for name in PAGE_NAMES)]
PART = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS: dict[str, Callable[[Path], str]] = {
    **confirmation.PARTS,
    **field_tables.PARTS,
    **penalties.PARTS,
    "leaderboard": leaderboard.format_page,
    "data_sheets": data_sheets_table,
    "default_runs": lambda folder: format_table(read_scores(folder, "default_runs")),
    "development_versions": describe_versions,
    "cases": cases_table,
    "signals": signals_table,
    "five_labels": five_label_outliers,
    "online_gains": gains_table,
    "training_sets": describe,
}


def fill(page: str, folder: Path) -> str:
    """Return the page with every marked part replaced."""
    return PART.sub(lambda marked: marked[1] + PARTS[marked[2]](folder) + marked[3], page)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DOCS / "results")
    parser.add_argument("--page", type=Path, nargs="+", default=PAGES)
    options = parser.parse_args(arguments)
    for page in options.page:
        page.write_text(fill(page.read_text(encoding="utf-8"), options.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
