"""What is installed from a wheel is what the checkout has, and it works away from it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import autotransfer as at

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "autotransfer"
# What a package is built from. The checkout itself is left alone: setuptools writes next to its sources.
SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff", "constraints.txt")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, with two files of the tests: all of them would take longer than the builds."""
    pytest.importorskip(
        "setuptools", minversion="77", reason="builds without a package registry, with setuptools >= 77"
    )
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(PACKAGE, folder / "src" / "autotransfer", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "tests").mkdir()
    for name in ("tiny.py", "test_packaging.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    return folder


def built(sources: Path, out: Path, kind: str, compiler: str) -> Path:
    """Return the wheel or the sdist, made by the build backend that pyproject.toml names."""
    shutil.rmtree(sources / "build", ignore_errors=True)  # what another compiler made
    command = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=sources, capture_output=True, text=True, encoding="utf-8", check=False,
        env=os.environ | {"CC": compiler},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made without a compiler, which would take most of the time."""
    return built(copied, tmp_path_factory.mktemp("wheel"), "wheel", "no-such-compiler")


def of_package(folder: Path) -> set[str]:
    """Everything that belongs to the package, modules or not, before anything is compiled."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so"))
    return {path.relative_to(folder).as_posix() for path in files}


def test_a_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    assert wheel.name.startswith(f"autotransfer-{at.__version__}-py3-none-")  # for every version of Python
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    inside = {name.removeprefix("autotransfer/") for name in names if name.startswith("autotransfer/")}
    assert inside == of_package(PACKAGE)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"autotransfer"}  # no tests, no benchmarks
    assert "\nLicense-Expression: BSD-3-Clause AND MIT\n" in metadata
    assert "\nProject-URL: Source, https://" in metadata
    assert not re.search(r"\]\((?!https?://|#)", metadata), "package indexes do not show the files of the repository"


@pytest.mark.slow
def test_an_sdist_holds_the_tests_and_what_they_need(copied: Path, tmp_path: Path) -> None:
    sdist = built(copied, tmp_path, "sdist", "no-such-compiler")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/autotransfer/{name}" for name in of_package(PACKAGE)} <= inside
    assert {"tests/tiny.py", "tests/test_packaging.py", *SOURCES} <= inside
    assert not any("__pycache__" in name for name in inside)


@pytest.mark.slow
def test_both_pass_the_checks_of_the_index(copied: Path, wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("twine", reason="needs twine")
    files = [str(wheel), str(built(copied, tmp_path, "sdist", "no-such-compiler"))]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "no-such-compiler"])
def test_the_demo_runs_from_a_wheel_outside_the_checkout(copied: Path, compiler: str, tmp_path: Path) -> None:
    """In an environment that has this one's other packages, but not its autotransfer."""
    wheel = built(copied, tmp_path, "wheel", compiler)
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    # Without PYTHONPATH: pip would find the checkout there, and take it for what it is to install.
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AUTOTRANSFER"))}
    installing = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(installing, check=True, env=outside)
    # A path of plain folders: .pth files there, such as that of an editable install of the checkout, are not followed.
    others = os.pathsep.join({sysconfig.get_path(kind) for kind in ("purelib", "platlib")})
    site = next(environment.rglob("site-packages"))
    outside |= {"PYTHONPATH": os.pathsep.join([str(site), others]), "OMP_NUM_THREADS": "1"}

    def call(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=outside, capture_output=True, text=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = call(str(python), "-c", "import autotransfer; print(autotransfer.__file__)")
    assert Path(where.strip()).is_relative_to(environment)
    everything = "import autotransfer as at; [getattr(at, name) for name in at.__all__]; print(at.__version__)"
    assert call(str(python), "-c", everything).strip() == at.__version__
    has_kernels = os.name == "posix" and shutil.which(compiler) is not None
    kernels = "CPU kernels: compiled" if has_kernels else "CPU kernels: none (torch computes)"
    assert kernels in call(str(scripts / "autotransfer"), "--version", "--verbose")
    call(str(scripts / "autotransfer"), "demo", "--epochs", "1", "--quiet")
    assert {"model", "report.html", "choice.json", "results.csv"} <= {
        path.name for path in (tmp_path / "demo-run").iterdir()
    }
