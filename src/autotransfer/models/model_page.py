"""README.md beside a saved model: as Hugging Face's hub reads it, YAML first, then what people ask."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from html import escape
from typing import Any

from ..training.intervals import NextSubject, describe_next_subject
from ..words import printable
from .card import ModelCard

TAGS = ("autotransfer", "biosignals", "time-series", "subject-transfer", "domain-generalization")
NAMES, LETTERS = 40, 200  # that a list has, and that a name has
SENTENCE = 600  # letters of one that a card holds
UNMEASURED = "It was not evaluated on held-out people."
LIMITS = (
    "Scores hold for people, devices and electrode positions like those it was trained on. It is not a medical device. "
    "Its settings are in `model.json`, its weights in `model.safetensors`."
)


def model_page(card: ModelCard) -> str:
    """Write the page of a model: what it was trained on, what it takes, and how good it is on new people."""
    name = f"AutoTransfer model for {_one_line(card.name)}"
    data = re.sub(r"[^A-Za-z0-9._-]+", "-", _one_line(card.name)).strip("-.")[:96] or "unnamed"
    head = {"library_name": "autotransfer", "tags": list(TAGS), "datasets": [data]}
    # JSON is YAML, and leaves no name that could be read as anything but a name.
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return f"---\n{front}\n---\n\n# {_markdown(name)}\n\n" + "\n".join(_body(card)) + "\n"


def _body(card: ModelCard) -> Iterable[str]:
    rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz, {card.n_times / card.sfreq:.3g} s"
    windows = f"windows of {len(card.channels)} channels and {card.n_times} samples{rate}"
    does, use = f"tells {len(card.classes)} classes apart in", "model.classes_"
    if card.task.is_numeric:
        does, use = "predicts a number for", "model.predict_interval(X)"
    whom = _held_out(card)
    yield f"It {does} {windows}, and was trained on {card.subjects} people by AutoTransfer to work on {whom}."
    yield "\n| | |\n| --- | --- |"
    if card.classes:
        yield f"| classes | {_some_of(card.classes)} |"
    yield f"| channels | {_some_of(card.channels)} |"
    yield f"| parts | {len(card.parts)} |"
    versions = ", ".join(f"{name} {version}" for name, version in card.made_with.items())
    yield f"| made with | {_markdown(versions, SENTENCE)} |"
    yield "\n## How good it is\n"
    yield from _measured(card)
    yield "\n## How to use it\n"
    yield '```python\nimport autotransfer as at\n\nmodel = at.load_model(".")  # this folder'
    yield f"model.predict(X)  # raw windows (N, channels, times)\n{use}\n```"
    yield "\n## Limits\n"
    yield LIMITS


def _held_out(card: ModelCard) -> str:
    """Say whom the model is for, which follows from what was held out."""
    hold_out = card.scores.get("hold_out", "subject")
    if hold_out == "subject":
        return "people it has never seen"
    if hold_out == "session":
        return "new sessions of these people; it was not evaluated on other people"
    return f"a new {_markdown(hold_out)}"


def _measured(card: ModelCard) -> Iterable[str]:
    """Write the headline of a run and what to expect of the next person."""
    sentence, hold_out = card.scores.get("headline"), str(card.scores.get("hold_out", "subject"))
    if not isinstance(sentence, str) or not sentence:
        yield UNMEASURED
        return
    yield _markdown(sentence, SENTENCE)
    with suppress(TypeError, ValueError):
        expected = NextSubject(**card.scores["next_subject"]) if card.scores.get("next_subject") else None
        if forecast := describe_next_subject(expected, hold_out):
            yield f"\n{_markdown(forecast, SENTENCE)}"
    unit = "each of these people" if hold_out == "subject" else "these windows"
    yield f"\nThe models that predicted {unit} were neither trained on them nor selected by their scores."


def _some_of(values: Sequence[Any]) -> str:
    more = f" and {len(values) - NAMES} more" if len(values) > NAMES else ""
    return ", ".join(map(_markdown, values[:NAMES])) + more


def _one_line(text: object, most: int = LETTERS) -> str:
    return printable(str(text))[:most]


def _markdown(text: object, most: int = LETTERS) -> str:
    """Write a text as Markdown that shows it and does nothing else."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", escape(_one_line(text, most), quote=False))
