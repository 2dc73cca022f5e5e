"""The documentation builds, has no broken link, loads nothing from elsewhere, leaves nothing out, and its code runs."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import autotransfer as at
from autotransfer.cli import app
from tiny import create_run, described, tiny_file

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
TESTED_ELSEWHERE = {"export.md": "tests/test_export.py"}  # needs files that only an export leaves
OPTIONAL = ("mne", "moabb", "skorch", "lightning", "dask_jobqueue")

# A fenced block, and what stands above it: <!-- no-run: the reason -->
BLOCK = re.compile(r"(?:<!-- no-run: (?P<why>.+?) -->\n)?```(?P<kind>python|console)\n(?P<text>.*?)```", re.DOTALL)


class Page(HTMLParser):
    """Links, ids, text and whatever a browser loads by itself."""

    LOADED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids += [found[key] for key in ("id", "name") if key in found]
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and set(found.get("rel", "").split()) & set(self.LOADED):
            self.loaded.append(found["href"])
        elif tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "object", "image"):
            self.loaded += [found[key] for key in ("src", "srcset", "data", "href") if found.get(key)]
        self.loaded += re.findall(r"url\((.*?)\)", found.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return _flat("".join(self.words))


def _flat(text: str) -> str:
    return " ".join(text.replace("`", "").split())


class Site(NamedTuple):
    folder: Path
    pages: dict[str, Page]  # by their path in the folder

    def source(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="the documentation is built with the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert built.returncode == 0, built.stdout + built.stderr
    paths = [path for path in folder.rglob("*.html") if path.name != "404.html"]  # which needs a server
    return Site(folder, {str(path.relative_to(folder)): Page(path) for path in paths})


@pytest.mark.slow
def test_no_link_is_broken(site: Site) -> None:
    broken = []
    for name, page in site.pages.items():
        for link in page.links:
            if link.startswith(("http://", "https://")):
                continue
            target, anchor = urldefrag(unquote(link))
            path = ((site.folder / name).parent / target).resolve() if target else site.folder / name
            there = path / "index.html" if path.is_dir() else path
            known = site.pages.get(str(there.relative_to(site.folder))) if there.exists() else None
            if not there.exists() or (anchor and (known is None or anchor not in known.ids)):
                broken.append(f"{name}: {link}")
    assert not broken
    assert len(site.pages) >= len(PAGES)


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    loaded = [(name, url) for name, page in site.pages.items() for url in page.loaded]
    assert any("stylesheets" in url for _, url in loaded)  # what the pages do load is seen here
    for name, url in loaded:
        own = url.startswith("data:") or ((site.folder / name).parent / url.split("?")[0]).exists()
        assert own, f"{name} loads {url}"
    for sheet in site.folder.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Site) -> None:
    page = site.pages["reference/python.html"]
    last = {anchor.split(".")[-1] for anchor in page.ids if anchor.startswith("autotransfer.")}
    assert set(at.__all__) <= last
    for name in at.__all__:
        value = getattr(at, name)
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            first = _flat((inspect.getdoc(value) or "").split("\n\n")[0])
            assert first, name
            assert first in page.text, name


@pytest.mark.slow
def test_every_command_and_option_is_in_the_reference(site: Site) -> None:
    html = site.source("reference/commands.html")
    sections = re.split(r'<h2 id="([\w-]+)">', html)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    names = list(get_command(app).commands)  # type: ignore[attr-defined]
    assert list(told) == names
    for name in names:
        help_text = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
        options = set(re.findall(r"--[a-z][a-z-]*", help_text)) - {"--help"}
        missing = [option for option in options if f"<code>{option}</code>" not in told[name]]
        assert not missing, (name, missing)
    assert "<code>--dry-run</code>" in told["run"]


@pytest.mark.slow
def test_every_field_of_a_setting_and_of_the_files_is_in_the_reference(site: Site, tmp_path: Path) -> None:
    from autotransfer.search.procedure import perform_plan
    from autotransfer.settings import field_names

    run = create_run(tmp_path / "run", described(source=str(tiny_file(tmp_path)), max_epochs=1, grid="uncensored"))
    perform_plan(run, lambda _: None, progress=False)
    columns = (tmp_path / "run/results.csv").read_text().splitlines()[0].split(",")
    keys = json.loads((tmp_path / "run/choice.json").read_text())
    settings, files = (site.source(f"reference/{name}.html") for name in ("settings", "files"))
    for name in field_names():
        assert f"<code>{name}</code>" in settings, name
    for name in (*columns, *keys):
        assert f"<code>{name}</code>" in files, name


def _steps(page: Path) -> list[tuple[str, str]]:
    """What can be run of a page, in order. An included example has a test of its own."""
    found = BLOCK.finditer((DOCS / page).read_text(encoding="utf-8"))
    return [(block["kind"], block["text"]) for block in found if not block["why"] and "--8<--" not in block["text"]]


PRINTED = {"person.md": "4 of 4 detected, 0 false, after 1.0 s"}  # as the page says
QUICK_PAGES = {"person.md", "recipes/own_encoder.md", "recipes/emg.md"}  # others fit models, or whole runs


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * (str(page) not in QUICK_PAGES))
        for page in PAGES
        if str(page) not in TESTED_ELSEWHERE and _steps(page)
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning:page")  # what a user of the page is told as well
def test_the_code_of_a_page_runs_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = _steps(page)
    for package in OPTIONAL:
        if re.search(rf"^(import|from) {package}\b", "\n".join(text for _, text in steps), re.MULTILINE):
            pytest.importorskip(package, reason=f"{page} shows how to use it")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for kind, text in steps:
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
        else:
            _check_console(text)
    said = PRINTED.get(str(page), "")
    assert said in capsys.readouterr().out
    assert said in (DOCS / page).read_text(encoding="utf-8")


def test_commands_of_every_page_are_taken() -> None:
    """Their options exist and take such values, also where a page runs in the slow suite."""
    commands, taken = get_command(app).commands, 0  # type: ignore[attr-defined]
    for page in PAGES:
        for kind, text in _steps(page):
            for line in re.findall(r"^\$ autotransfer (.+)", text, re.MULTILINE) if kind == "console" else ():
                name, *words = line.split()
                commands[name].make_context(name, words)
                taken += 1
    assert taken > 5


def _check_console(text: str) -> None:
    """Run each command with one epoch; it must say what the page shows, up to numbers, paths and what was chosen."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        words = re.sub(r"--epochs \d+", "--epochs 1", command).split()
        assert words[0] == "autotransfer"
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, (command, result.output, result.exception)
        assert _skeleton(result.stdout) == _skeleton(shown), command


def _skeleton(text: str) -> list[str]:
    told = r"Score|Best baseline( so far)?|Next subject|Unlabeled windows|\w+ labels? per class|report"
    text = re.sub(rf"^({told}): .*", "…", text, flags=re.MULTILINE)
    # What the result means and what to do next depend on the scores, which differ after one epoch.
    sentences = r"The model is|No better than|\d+ subjects are|Predict new|Check labels|Record more|The time limit"
    sentences += r"|\w+ labeled windows? per class|Unlabeled windows help"
    text = re.sub(rf"^({sentences}) .*\n", "", text, flags=re.MULTILINE)
    # Which stages there are depends on how long each takes.
    text = re.sub(r"^(#   \d+\. |stage \d+ of |interim result after ).*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^data = .*", "data = …", text, flags=re.MULTILINE)
    text = re.sub(r"\d+ of \d+ fits done", "# of # fits done", text)
    text = re.sub(r" \(it is busy with other work; alone about [\d:]+\)", "", text)
    text = text.replace("epochs", "epoch")  # of which there is one
    return [line.rstrip() for line in re.sub(r"\d+", "#", text).strip().splitlines()]


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    found = [block for page in PAGES for block in BLOCK.finditer((DOCS / page).read_text()) if block["why"]]
    assert len(found) <= 3
    assert all(len(block["why"].split()) >= 3 for block in found)
