"""README.md of a saved model: YAML for Hugging Face's hub, then inputs, scores, use and limits."""

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
NAMES, LETTERS = 40, 200  # maximum number of names in a list, and of letters in a name
SENTENCE = 600  # maximum number of letters in a sentence from a card
UNMEASURED = "It was not evaluated on held-out subjects."
LIMITS = (
    "Scores hold for subjects, devices and electrode positions like those of the training data. It is not a medical "
    "device. "
    "Its settings are in `model.json`, its weights in `model.safetensors`."
)


def model_page(card: ModelCard) -> str:
    """Return the page of a model as Markdown."""
    name = f"AutoTransfer model for {_shorten_line(card.name)}"
    data = re.sub(r"[^A-Za-z0-9._-]+", "-", _shorten_line(card.name)).strip("-.")[:96] or "unnamed"
    head = {"library_name": "autotransfer", "tags": list(TAGS), "datasets": [data]}
    # JSON is valid YAML, in which every name is quoted.
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return f"---\n{front}\n---\n\n# {_escape_markdown(name)}\n\n" + "\n".join(_describe_model(card)) + "\n"


def _describe_model(card: ModelCard) -> Iterable[str]:
    sfreq = card.signal.sfreq
    rate = "" if sfreq is None else f" at {sfreq:g} Hz, {card.n_times / sfreq:.3g} s"
    windows = f"windows of {len(card.signal.channels)} channels and {card.n_times} samples{rate}"
    predicted, use = f"one of {len(card.classes)} classes", "model.classes_"
    if card.task.is_numeric:
        predicted, use = "a number", "model.predict_interval(X)"
    purpose = f"was trained by AutoTransfer on {card.subjects} subjects to work on {_describe_held_out(card)}"
    yield f"It predicts {predicted} for {windows}, and {purpose}."
    yield "\n| | |\n| --- | --- |"
    if card.classes:
        yield f"| classes | {_list_names(card.classes)} |"
    yield f"| channels | {_list_names(card.signal.channels)} |"
    yield f"| candidates | {len(card.candidates)} |"
    versions = ", ".join(f"{name} {version}" for name, version in card.made_with.items())
    yield f"| made with | {_escape_markdown(versions, SENTENCE)} |"
    yield "\n## How good it is\n"
    yield from _describe_scores(card)
    yield "\n## How to use it\n"
    yield '```python\nimport autotransfer as at\n\nmodel = at.load_model(".")  # this folder'
    yield f"model.predict(X)  # raw windows (N, channels, times)\n{use}\n```"
    yield "\n## Limits\n"
    yield LIMITS


def _describe_held_out(card: ModelCard) -> str:
    """Describe the data on which the model was evaluated."""
    hold_out = card.scores.get("hold_out", "subject")
    if hold_out == "subject":
        return "new subjects"
    if hold_out == "session":
        return "new sessions of these subjects; it was not evaluated on other subjects"
    return f"a new {_escape_markdown(hold_out)}"


def _describe_scores(card: ModelCard) -> Iterable[str]:
    """Yield the score of the model and the interval for the next subject."""
    sentence, hold_out = card.scores.get("headline"), str(card.scores.get("hold_out", "subject"))
    if not isinstance(sentence, str) or not sentence:
        yield UNMEASURED
        return
    yield _escape_markdown(sentence, SENTENCE)
    with suppress(TypeError, ValueError):
        expected = NextSubject(**card.scores["next_subject"]) if card.scores.get("next_subject") else None
        if forecast := describe_next_subject(expected, hold_out):
            yield f"\n{_escape_markdown(forecast, SENTENCE)}"
    unit = "a subject" if hold_out == "subject" else "a window"
    yield f"\nThe model that predicted {unit} was neither trained on it nor selected by its score."


def _list_names(values: Sequence[Any]) -> str:
    more = f" and {len(values) - NAMES} more" if len(values) > NAMES else ""
    return ", ".join(map(_escape_markdown, values[:NAMES])) + more


def _shorten_line(text: object, most: int = LETTERS) -> str:
    return printable(str(text))[:most]


def _escape_markdown(text: object, most: int = LETTERS) -> str:
    """Return a text as Markdown in which every character stands for itself."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", escape(_shorten_line(text, most), quote=False))
