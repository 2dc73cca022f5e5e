"""Set the version in the three files that state it: .github/set_version.py 0.2.0, or 0.3.0.dev0 after the release."""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]


def replace(name: str, pattern: str, text: str) -> None:
    path = ROOT / name
    content, n = re.subn(pattern, text, path.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
    if n != 1:
        sys.exit(f"{name} has no line {pattern}")
    path.write_text(content, encoding="utf-8")


(version,) = sys.argv[1:]
number, _, development = version.partition(".dev")
today = date.today().isoformat()
replace("src/autotransfer/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{version}"')
if development:
    replace("CITATION.cff", r"^version: .*$(\ndate-released: .*$)?", f"version: {version}")
    replace("CHANGELOG.md", r"^# Changelog$", f"# Changelog\n\n## {number} (in development)")
else:
    replace("CITATION.cff", r"^version: .*$(\ndate-released: .*$)?", f"version: {version}\ndate-released: {today}")
    replace("CHANGELOG.md", r"^## .* \(in development\)$", f"## {version} ({today})")
