"""Compile kernels.c into one shared library per instruction set, if there is a compiler.

The libraries do not use Python's C interface, so one wheel per platform serves every version of Python. On Windows, and
if compilation fails, there are no kernels, and torch operations are used.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

REPOSITORY = "https://github.com/autotransfer/autotransfer"
SOURCE = "src/autotransfer/cpu/kernels.c"
FLAGS = (
    "-std=gnu11", "-O3", "-g0", "-fno-fast-math", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-pthread",
)  # fmt: skip
IS_X86 = platform.machine() in ("x86_64", "AMD64")
# PyTorch uses an instruction set if the processor has these extensions. ARM needs no flags for NEON.
INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {"plain": ()}
if IS_X86:
    INSTRUCTION_SETS["avx2"] = "-mavx2", "-mfma"
    INSTRUCTION_SETS["avx512"] = "-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"


class BuildLibraries(build_ext):
    """Build shared libraries whose file names do not depend on the version of Python."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = None  # the libraries share one object file, so they are built one after the other

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"


class TaggedWheel(bdist_wheel):
    """Wheel for every version of Python 3 on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


LIBRARIES = [
    Extension(
        f"autotransfer.cpu.kernels_{name}", [SOURCE], depends=["setup.py"], libraries=["m"], optional=True,
        extra_compile_args=[*FLAGS, *flags], extra_link_args=["-pthread"],
    )
    for name, flags in INSTRUCTION_SETS.items()
]  # fmt: skip


def readme() -> str:
    """Return README.md with absolute links, because package indexes do not show the files of the repository."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\g<1>{REPOSITORY}/raw/main/", text)
    return re.sub(r"\]\((?!https?:|#)", f"]({REPOSITORY}/blob/main/", text)


if __name__ == "__main__":
    setup(
        long_description=readme(),
        long_description_content_type="text/markdown",
        ext_modules=LIBRARIES if os.name == "posix" else [],
        cmdclass={"build_ext": BuildLibraries, "bdist_wheel": TaggedWheel},
    )
