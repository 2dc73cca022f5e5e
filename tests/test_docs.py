"""The documentation builds, has no broken link, loads nothing from elsewhere, leaves nothing out, and its code runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from autotransfer.runs.choice import Choice, EnsembleWeights, PredictionSetScores, ReplayResult
from autotransfer.runs.results import COLUMNS
from autotransfer.settings import field_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = ("auto_examples", "generated", "command_list.md")  # written when the documentation is built
PAGES = [
    page
    for page in sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
    if not set(page.parts) & set(MADE)
]
TESTED_ELSEWHERE = {"docs/guide/export.md": "tests/test_export.py", "README.md": "tests/test_examples.py"}
GUIDE = (
    "is_it_for_me", "demo", "plan", "prepare", "first_run", "result", "new_subject", "abstain", "paper", "questions",
)  # fmt: skip
# Terms of the method, its page and the reference, which no page of the guide needs.
PRIVATE = (
    "candidate", "member", "critic", "hyperparameter", "checkpoint", "closed form",
    "leave-one", "zero shot", "log-loss", "stacked",
)  # fmt: skip

BLOCK = re.compile(r"```(?P<kind>python|console)\n(?P<text>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")


def text_of(page: Path | str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose_of(page: Path | str) -> str:
    """Return the text of a page without code."""
    text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    return re.sub(r"`[^`\n]+`", "", text)


def headings(page: Path) -> set[str]:
    """Return the anchors of headings, as GitHub and MyST make them."""
    text = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# links


def find_broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)):
        target, _, anchor = link.partition("#")
        path = (ROOT / page.parent / target).resolve() if target else ROOT / page
        if path.parent == DOCS / "auto_examples":
            path = ROOT / "examples" / ("README.rst" if path.stem == "index" else f"{path.stem}.py")
        if not path.exists() or (anchor and anchor not in headings(path)):
            yield f"{page}: {link}"


def test_no_link_is_broken() -> None:
    assert [broken for page in PAGES for broken in find_broken(page)] == []


# completeness


def test_every_public_name_is_in_the_reference() -> None:
    listed = re.findall(r"^   ([\w.]+)$", text_of("docs/reference/index.md"), re.MULTILINE)
    assert set(at.__all__) <= set(listed)


def test_every_hidden_option_is_in_the_reference() -> None:
    page = text_of("docs/reference/commands.md")
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    hidden = {option.opts[-1] for command in commands for option in command.params if getattr(option, "hidden", False)}
    assert hidden
    assert [name for name in hidden if name not in page] == []


def test_every_field_of_a_setting_and_of_the_files_is_in_the_reference() -> None:
    described = set(re.findall(r"^ +(\w+) : ", at.Setting.__doc__ or "", re.MULTILINE))
    assert described == set(field_names())
    page = text_of("docs/reference/files.md")
    keys = [
        field.name for kind in (Choice, EnsembleWeights, ReplayResult, PredictionSetScores) for field in fields(kind)
    ]
    columns = [name for name in COLUMNS if name not in field_names()]
    assert [name for name in (*keys, *columns) if f"`{name}`" not in page] == []


# language


def test_the_glossary_is_short_and_its_terms_are_used() -> None:
    terms = re.findall(r"^(\w[^\n]*)\n  \w", text_of("docs/guide/glossary.md"), re.MULTILINE)
    guide = " ".join(prose_of(f"docs/guide/{name}.md") for name in GUIDE).lower()
    assert 10 < len(terms) <= 25
    assert [term for term in terms if term.removesuffix("ing") not in guide] == []


def test_the_guide_uses_no_terms_of_the_method() -> None:
    for name in GUIDE:
        prose = prose_of(f"docs/guide/{name}.md").lower()
        assert [term for term in PRIVATE if term in prose] == [], name


def test_the_documentation_is_short() -> None:
    tracked = [*PAGES, Path("benchmarks/protocol.md")]
    assert sum(len(text_of(page).split()) for page in tracked) <= 45_000


# code blocks


def steps(page: Path) -> list[tuple[str, str]]:
    """Return the kind and text of the blocks of a page that can be run, in order."""
    return [(block["kind"], block["text"]) for block in BLOCK.finditer(text_of(page))]


PRINTED = {"docs/guide/new_subject.md": "4 of 4 detected, 0 false, after 1.0 s"}  # as the page says
NEEDS = {"docs/guide/plan.md": "docs/guide/first_run.md"}  # pages that use files of another page
QUICK_PAGES = {"docs/guide/new_subject.md", "docs/guide/prepare.md", "docs/guide/plan.md", "docs/reference/settings.md"}
RUN_PAGES = [page for page in PAGES if page.as_posix() not in TESTED_ELSEWHERE and "CONTRIBUTING" not in page.name]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (page.as_posix() not in QUICK_PAGES))
        for page in RUN_PAGES
        if steps(page)
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning:page")  # what a user of the page is told as well
def test_the_code_of_a_page_runs_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "page"}
    if page.as_posix() in NEEDS:
        exec(next(text for kind, text in steps(Path(NEEDS[page.as_posix()])) if kind == "python"), names)
    for kind, text in steps(page):
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
        else:
            check_console(text)
    said = PRINTED.get(page.as_posix(), "")
    assert said in capsys.readouterr().out
    assert said in text_of(page)


def test_commands_of_every_page_are_taken() -> None:
    """Their options exist and take such values, also in blocks that are not run."""
    commands, taken = get_command(app).commands, 0  # type: ignore[attr-defined]
    for page in PAGES:
        for text in re.findall(r"```(?:bash|console|text)\n(.*?)```", text_of(page), re.DOTALL):
            for line in re.findall(r"^(?:\$ )?autotransfer ([a-z].*)", text, re.MULTILINE):
                name, *words = shlex.split(line, comments=True)
                commands[name].make_context(name, words)
                taken += 1
    assert taken > 20


def check_console(text: str) -> None:
    """Run each command; it must say what the page shows, up to numbers, paths and what was chosen."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command)
        assert words[0] == "autotransfer"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, (command, result.output, result.exception)
        assert skeleton(result.stdout) == skeleton(shown), command


def skeleton(text: str) -> list[str]:
    told = r"Score|Best baseline( so far)?|Next subject|Unlabeled windows|\w+ labels? per class|report"
    text = re.sub(rf"^({told}): .*", "…", text, flags=re.MULTILINE)
    # What the result means and what to do next depend on the scores.
    sentences = r"The model is|No better than|\d+ subjects are|Predict new|Check labels|Record more|The time limit"
    sentences += r"|\w+ labeled windows? per class|Unlabeled windows help"
    text = re.sub(rf"^({sentences}) .*\n", "", text, flags=re.MULTILINE)
    # Which stages there are, and which one ends a run, depends on the speed of the machine.
    text = re.sub(
        r"^(stage \d+ of |interim result after |ended: |\w.*: stopped at the time limit).*\n",
        "",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"(?<=run: finished).*", "", text)
    text = re.sub(r"[█▏▎▍▌▋▊▉]+", "█", text)
    return [line.rstrip() for line in re.sub(r"\d+", "#", text).strip().splitlines()]


# the site


class Page(HTMLParser):
    """What a browser loads by itself."""

    LOADED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        if tag == "link" and set(found.get("rel", "").split()) & set(self.LOADED):
            self.loaded.append(found["href"])
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "object", "image"):
            self.loaded += [found[key] for key in ("src", "srcset", "data", "href") if found.get(key)]


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "numpydoc", "sphinx_gallery", "pydata_sphinx_theme"):
        pytest.importorskip(package, reason="the documentation is built with the extra 'docs'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-D", "plot_gallery=0"]
    command += ["-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert built.returncode == 0, built.stdout + built.stderr
    paths = [path for path in (tmp_path / "site").rglob("*.html") if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    loaded = [(path, url) for path, page in pages.items() for url in page.loaded]
    assert any("_static" in url for _, url in loaded)  # what the pages do load is seen here
    for path, url in loaded:
        assert url.startswith("data:") or (path.parent / url.split("?")[0]).exists(), f"{path} loads {url}"
    commands = (tmp_path / "site" / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f"autotransfer {name}" in re.sub(r"<[^>]+>", "", commands), name
