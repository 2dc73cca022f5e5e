"""Take the pictures of a report for docs/report.md: python docs/screenshots.py RUN/report.html"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

from browser import Browser

ROOT = Path(__file__).parent.parent

SCREENS = {  # first screens: width, height, is_dark
    "report_answer": (860, 760, False),
    "report_dark": (860, 760, True),
    "report_phone": (400, 800, False),
}
PARTS = {
    "differences": "#figure-differences",
}


def main(report: Path, folder: Path) -> None:
    browser = Browser()
    try:
        for name, (width, height, dark) in SCREENS.items():
            browser.open(report, width=width, height=height, dark=dark, phone=width < 500)
            _take(browser, folder / f"{name}.png", 0, 0, width, height)
        browser.open(report, width=860, height=1200)
        browser.evaluate("document.querySelectorAll('.part').forEach((part) => part.open = true)")
        browser.evaluate("document.querySelectorAll('.numbers').forEach(box => box.remove())")
        for name, selector in PARTS.items():
            browser.wait_for(f"document.querySelector('{selector} svg')")
            box = browser.evaluate(
                f"(r => [r.left + scrollX, r.top + scrollY, r.width, r.height])"
                f"(document.querySelector({selector!r}).getBoundingClientRect())"
            )
            _take(browser, folder / f"report_{name}.png", box[0] - 12, box[1] - 12, box[2] + 24, box[3] + 24)
    finally:
        browser.close()


def _take(browser: Browser, path: Path, x: float, y: float, width: float, height: float) -> None:
    clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
    response = browser.call("Page.captureScreenshot", captureBeyondViewport=True, format="png", clip=clip)
    path.write_bytes(base64.b64decode(response["data"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), ROOT / "docs" / "images")
