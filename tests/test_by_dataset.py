"""Benchmarks over data sets share a command line and CSVs in which nothing is computed twice."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.csv_rows import build_parser, measure_datasets, read_known_rows

import autotransfer as at
from tiny import tiny_file


def test_a_data_set_is_measured_once(tmp_path: Path) -> None:
    source, out = str(tiny_file(tmp_path)), str(tmp_path / "table.csv")
    seen: list[str] = []

    def measured(recordings: at.Recordings, options: argparse.Namespace) -> Iterator[dict[str, object]]:
        seen.append(recordings.name)
        for person in range(2):
            yield {"data": recordings.name, "person": person, "score": options.seeds / 2}

    columns = ["data", "person", "score"]
    parser = build_parser("about", out, "seeds", files="*")
    first = measure_datasets(parser.parse_args([source, "--seeds", "3"]), columns, measured)
    again = measure_datasets(parser.parse_args([source]), columns, measured)
    alone = measure_datasets(parser.parse_args([]), columns, measured)
    assert seen == ["tiny"]
    assert first["score"].tolist() == again["score"].tolist() == alone["score"].tolist() == [1.5, 1.5]
    (tmp_path / "table.csv").write_text("data,person,score\nother,0,0.25\n")
    both = measure_datasets(parser.parse_args([source]), columns, measured)
    assert both["data"].tolist() == ["other", "tiny", "tiny"]
    assert [row["data"] for row in read_known_rows(tmp_path / "table.csv")] == ["other", "tiny", "tiny"]
