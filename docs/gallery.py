"""Draw the figures of the gallery with its examples: python docs/gallery.py [NAME …]"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
# Figures are reproducible and keep their text as text.
LOOK = (
    "svg.hashsalt: autotransfer\nsvg.fonttype: none\naxes.spines.top: False\naxes.spines.right: False\nfont.size: 9\n"
)


def find_names() -> list[str]:
    """Return the names of examples with a figure."""
    return [path.stem for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.stem}.svg"' in path.read_text()]


def draw(name: str, folder: Path) -> Path:
    """Run an example in `folder` on one core, and return its figure without a date."""
    (folder / "matplotlibrc").write_text(LOOK)
    quiet = {"MPLBACKEND": "svg", "OMP_NUM_THREADS": "1", "SOURCE_DATE_EPOCH": "0"}
    subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py")], cwd=folder, env=os.environ | quiet, check=True)
    path = folder / f"{name}.svg"
    path.write_text(re.sub(r"\s*<dc:date>.*?</dc:date>", "", path.read_text()))
    return path


def main(wanted: list[str]) -> None:
    target = ROOT / "docs" / "images" / "gallery"
    target.mkdir(exist_ok=True)
    for name in wanted or find_names():
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            (target / f"{name}.svg").write_bytes(draw(name, Path(folder)).read_bytes())
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
