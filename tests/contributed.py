"""The censor, transform, encoder, augmentation and task that CONTRIBUTING shows how to add, registered for tests."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.model.encoders import ENCODERS
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.tasks import TASKS

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
EXAMPLE = re.compile(
    r"<!-- example: (\S+) (\w+) -->\n```python\n(.*?)```\n\nRegistry: `\"(\w+)\": (\w+)` in `(\w+)`", re.DOTALL
)
REGISTRIES: dict[str, dict[str, Any]] = {
    "CENSORS": CENSORS, "TRANSFORMS": TRANSFORMS, "ENCODERS": ENCODERS, "AUGMENTATIONS": AUGMENTATIONS,
    "TASKS": TASKS,
}  # fmt: skip


class Example(NamedTuple):
    path: str  # below the package
    kind: str  # the class
    text: str
    name: str  # in the registry
    registered: str  # the class of the registry's line
    registry: str


EXAMPLES = [Example(*found) for found in EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The examples as modules of the package, each with its line in the registry."""
    folder, made = tmp_path_factory.mktemp("examples"), []
    for one in EXAMPLES:
        name = "autotransfer." + one.path.removesuffix(".py").replace("/", ".")
        assert importlib.util.find_spec(name) is None, f"{one.path} is there already"
        file = folder / Path(one.path).name
        file.write_text(one.text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        REGISTRIES[one.registry][one.name] = getattr(module, one.registered)
    yield
    for one, name in zip(EXAMPLES, made, strict=True):
        del REGISTRIES[one.registry][one.name], sys.modules[name]
