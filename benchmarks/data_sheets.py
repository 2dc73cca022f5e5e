"""Format the table of docs/data_sheets.md from datasets.csv."""

from __future__ import annotations

from pathlib import Path

from .evidence import data_sheets
from .markdown import markdown

COLUMNS = {
    "who and where": "who", "device": "device", "license": "license", "how windows were cut": "cut",
    "what is confounded": "confounded",
}  # fmt: skip


def data_sheets_table(folder: Path) -> str:
    """Return one line for each data set."""
    rows = []
    for sheet in data_sheets(folder).reset_index(drop=True).sort_values(["used", "dataset"]).to_dict("records"):
        facts = [sheet[name] for name in COLUMNS.values()]
        rows.append([sheet["dataset"], sheet["signal"], sheet["used"], str(sheet["subjects"]), *facts])
    heads = ["data set", "signal", "used for", "subjects", *COLUMNS]
    return markdown(heads, rows)
