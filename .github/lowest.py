"""Print the lowest allowed versions of dependencies as constraints for pip. Usage: .github/lowest.py [EXTRA...]."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
wanted = [*project["dependencies"]]
for extra in sys.argv[1:]:
    wanted += project["optional-dependencies"][extra]
for requirement in wanted:
    found = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement)
    if found is None:
        sys.exit(f"{requirement} has no lowest version")
    print(f"{found[1]}=={found[2]}")
