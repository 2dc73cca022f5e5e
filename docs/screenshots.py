"""Pictures of the tutorial's report, for the pages that explain it: python docs/screenshots.py RUN/report.html"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser  # noqa: E402

PARTS = {
    "answer": "#answer",
    "results": "#figure-results",
    "differences": "#figure-differences",
    "candidates": "#figure-candidates",
    "leakage": "#figure-leakage",
}


def main(report: Path, folder: Path) -> None:
    browser = Browser()
    try:
        browser.open(report, width=860, height=1200)
        browser.evaluate("document.querySelectorAll('.tools').forEach(tools => tools.remove())")
        for name, selector in PARTS.items():
            browser.evaluate(f"document.querySelector({selector!r}).scrollIntoView()")
            browser.wait_for(f"!document.querySelector('{selector} .plot') || document.querySelector('{selector} svg')")
            box = browser.evaluate(
                f"(r => [r.left + scrollX, r.top + scrollY, r.width, r.height])"
                f"(document.querySelector({selector!r}).getBoundingClientRect())"
            )
            clip = {"x": box[0] - 12, "y": box[1] - 12, "width": box[2] + 24, "height": box[3] + 24, "scale": 1}
            answer = browser.call("Page.captureScreenshot", captureBeyondViewport=True, format="png", clip=clip)
            (folder / f"report_{name}.png").write_bytes(base64.b64decode(answer["data"]))
    finally:
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), ROOT / "docs" / "images")
