"""Data flow one way, names are explicit, and importing is quick."""

from __future__ import annotations

import ast
import graphlib
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import autotransfer as at

PACKAGE = Path(at.__file__).parent
# A room imports only from rooms to its left.
ROOMS = [
    "errors", "words", "files", "csv_tables", "schema", "machine", "boundary", "gpu", "cpu", "kernels",
    "versions", "randomness", "recordings", "tasks", "preprocessing", "augment", "model", "censoring", "settings",
    "grids", "folds", "jobs", "training", "models", "runs", "person", "search", "report", "plot", "estimator", "export",
    "cluster", "cli",
]  # fmt: skip
ANYWHERE = {"__init__", "__main__"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(path: Path) -> set[str]:
    """First component below the package of everything the file imports from it."""
    depth = len(path.relative_to(PACKAGE).parts)
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autotransfer"):
            found |= set((node.module or "").split(".")[1:2])
    return found


def test_imports_point_left() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ANYWHERE:
            continue
        assert room in ROOMS, f"{room} has no place in the order of rooms"
        wrong += [f"{path.name}: {other}" for other in imports_of(path) if ROOMS.index(other) > ROOMS.index(room)]
    assert not wrong


def modules_imported(path: Path, modules: set[str]) -> set[str]:
    """Every module of the package that a file imports, wherever in it, also for its types alone."""
    package = path.relative_to(PACKAGE.parent).with_suffix("").parts[:-1]
    imported = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            start = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            origin = ".".join(filter(None, start))
            for alias in node.names:
                imported.add(name if (name := f"{origin}.{alias.name}") in modules else origin)
    return imported


def test_no_modules_import_each_other() -> None:
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    graph = {name: modules_imported(path, set(files)) - {name} for name, path in files.items()}
    assert {"autotransfer.errors", "autotransfer.schema"} <= graph["autotransfer.runs.database"], "imports are seen"
    graphlib.TopologicalSorter(graph).prepare()  # raises, and names the circle


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > 60 and not path.stem.endswith("_kernels"):
                    long.append(f"{path.name}: {node.name}")
    assert not long


def test_public_names_exist_and_are_listed() -> None:
    for name in at.__all__:
        assert getattr(at, name) is not None
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    typed = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed == set(at.__all__), "what type checkers see and what __getattr__ gives must agree"


def test_public_names_are_documented_in_the_numpy_convention() -> None:
    wrong = []
    public_objects = {name: getattr(at, name) for name in sorted({*at.__all__} - {"UserError", "scores", "plot"})}
    public_objects |= {f"plot.{name}": getattr(at.plot, name) for name in at.plot.__all__}
    del public_objects["Setting"]  # its parameters are on a page of their own
    for name, public in public_objects.items():
        sections = ("Parameters",) if isinstance(public, type) else ("Parameters", "Returns")
        found = re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(public) or "", re.MULTILINE)
        wrong += [f"{name}: {section}" for section in sections if section not in found]
    assert wrong == ["save_model: Returns"], "it returns nothing"


@pytest.mark.parametrize("module", ["autotransfer", "autotransfer.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    heavy = ("torch", "numpy", "sklearn", "pandas", "optuna", "plotly", "mne", "moabb", "onnx", "dask", "scipy")
    code = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_the_page_on_architecture_knows_every_room() -> None:
    page = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = re.findall(
        r"`(\w+)/?`", " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    )
    assert rooms == ROOMS
