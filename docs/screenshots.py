"""Take the picture of a report for README and user guide with `python docs/screenshots.py RUN/report.html`."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # of browser

from browser import Browser  # noqa: E402

SIZE = {"width": 860, "height": 760}


def main(report: Path) -> None:
    browser = Browser()
    try:
        browser.open(report, **SIZE)
        clip = {"x": 0, "y": 0, "scale": 1} | SIZE
        response = browser.call("Page.captureScreenshot", format="png", clip=clip)
        (ROOT / "docs" / "images" / "report_answer.png").write_bytes(base64.b64decode(response["data"]))
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
