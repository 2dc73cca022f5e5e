"""Configuration of Sphinx: `make docs` builds the documentation into site/."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import autotransfer

project = "AutoTransfer"
copyright = "The AutoTransfer developers"
version = release = autotransfer.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["reference/command_list.md", "results", "auto_examples/*.ipynb", "auto_examples/*.py"]
templates_path = ["templates"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

default_role = "literal"  # docstrings mark code with single backquotes
autodoc_typehints = "none"  # numpydoc shows the types that docstrings state
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "write_computation_times": False,  # this page would load scripts from elsewhere
    "show_memory": False,
    "abort_on_example_error": True,
    "default_thumb_file": str(Path(__file__).parent / "images" / "favicon.svg"),
}

html_theme = "pydata_sphinx_theme"
html_title = "AutoTransfer"
html_favicon = "images/favicon.svg"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False, "show_prev_next": True, "secondary_sidebar_items": ["page-toc"]}


def write_commands(app: Any) -> None:
    """Write the reference of the command line with the documentation generator of Typer."""
    path = Path(app.srcdir) / "reference" / "command_list.md"
    command = [sys.executable, "-m", "typer", "autotransfer.cli", "utils", "docs", "--name", "autotransfer"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    path.write_text(text[text.index("## `") :], encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("builder-inited", write_commands)
