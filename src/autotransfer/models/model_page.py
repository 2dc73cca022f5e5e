"""README.md beside a saved model: as Hugging Face's hub reads it, YAML first, then what people ask."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from typing import Any

from ..training.intervals import NextPerson, next_words
from ..words import printable
from .card import Card
from .regression_card import RegressionCard

TAGS = ("autotransfer", "biosignals", "time-series", "subject-transfer", "domain-generalization")
LETTERS = 200  # of a name
SENTENCE = 600  # letters of one that a card holds
UNMEASURED = "Nobody has measured it on people left out."
LIMITS = (
    "Scores hold for people, devices and electrode positions like those it was trained on. It is no medical device. "
    "Its settings are in `model.json`, its weights in `model.safetensors`."
)


def model_page(card: Card) -> str:
    """The page of a model: what it was trained on, what it takes, and how good it is on people it has never seen."""
    score, metric = _score(card.scores), str(card.scores.get("metric", "balanced_accuracy"))
    name = f"AutoTransfer model for {one_line_of(card.name)}"
    head: dict[str, Any] = {"library_name": "autotransfer", "tags": list(TAGS), "metrics": [slug(metric)]}
    head["datasets"] = [slug(card.name)]
    if score is not None:
        _, task, people = _held_out(card)
        measured = {"type": slug(metric), "name": f"{metric.replace('_', ' ')}, mean over {people}"}
        head["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": "other", "name": f"classification of biosignal windows of {task}"},
                        "dataset": {"type": slug(card.name), "name": one_line_of(card.name)},
                        "metrics": [measured | {"value": round(score, 4)}],
                    }
                ],
            }
        ]
    return hub_page(name, head, _body(card, score, metric))


def hub_page(name: str, head: dict[str, Any], body: Iterable[str]) -> str:
    """A page as Hugging Face's hub reads it: YAML, the name as its title, then lines."""
    # JSON is YAML, and leaves no name that could be read as anything but a name.
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return f"---\n{front}\n---\n\n# {markdown(name)}\n\n" + "\n".join(body) + "\n"


def regression_page(card: RegressionCard) -> str:
    """The page of a model of a continuous target."""
    name = f"AutoTransfer model for {one_line_of(card.name)}"
    head = {"library_name": "autotransfer", "tags": [*TAGS, "regression"], "datasets": [slug(card.name)]}
    rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz, {card.n_times / card.sfreq:.3g} s"
    verdict = card.scores.get("verdict")
    first = (
        f"It predicts a number for each window of {len(card.channels)} channels and {card.n_times} samples{rate}, and "
        f"was trained on {card.subjects} people by AutoTransfer to work on people it has never seen."
    )
    measured = [
        markdown(verdict, SENTENCE) if isinstance(verdict, str) and verdict else UNMEASURED,
        "\nWhat predicted each of these people was neither trained on them nor chosen by their scores.",
    ]
    rows = [f"| channels | {some_of(card.channels)} |", f"| linear models | {len(card.parts)} |", *_made_with(card)]
    return hub_page(name, head, _sections(first, rows, measured, "model.predict_interval(X, coverage=0.9)  # (N, 2)"))


def _made_with(card: Card | RegressionCard) -> Iterable[str]:
    """Versions, and whether kernels were compiled, as a row of a table; none of an earlier version's model."""
    listed = ", ".join(f"{name} {version}" for name, version in card.made_with.items())
    return [f"| made with | {markdown(listed, SENTENCE)} |"] if listed else []


def _body(card: Card, score: float | None, metric: str) -> Iterable[str]:
    rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz, {card.n_times / card.sfreq:.3g} s"
    parts = getattr(card, "parts", None)
    first = (
        f"It tells {len(card.classes)} classes apart in windows of {len(card.channels)} channels and {card.n_times} "
        f"samples{rate}, and was trained on {card.subjects} people by AutoTransfer to work on {_held_out(card)[0]}."
    )
    rows = [
        f"| classes | {some_of(card.classes)} |",
        f"| channels | {some_of(card.channels)} |",
        f"| models | {card.members}{'' if parts is None else f' in {len(parts)} parts, averaged'} |",
        *_made_with(card),
    ]
    measured = [UNMEASURED] if score is None else _measured(card.scores, score, metric)
    return _sections(first, rows, measured, "model.classes_")


def _sections(first: str, rows: Iterable[str], measured: Iterable[str], use: str) -> Iterable[str]:
    """What every page of a model has. rows: of a table; use: a line of Python after a prediction."""
    yield first
    yield "\n| | |\n| --- | --- |"
    yield from rows
    yield "\n## How good it is\n"
    yield from measured
    yield "\n## How to use it\n"
    yield '```python\nimport autotransfer as at\n\nmodel = at.load_model(".")  # this folder'
    yield f"model.predict(X)  # windows (N, channels, times), raw: it prepares them itself\n{use}\n```"
    yield "\n## Limits\n"
    yield LIMITS


def _held_out(card: Card) -> tuple[str, str, str]:
    """What was held out decides whom the model is for, what its task is called, and over whom scores are means."""
    hold_out = card.scores.get("hold_out", "subject")
    if hold_out == "subject":
        return "people it has never seen", "new people", "people left out"
    if hold_out == "session":
        known = "new sessions of these people; nobody has measured it on others"
        return known, "new sessions of known people", "people"
    return f"a new {markdown(hold_out)}", f"a new {one_line_of(hold_out)}", "people"


def _measured(scores: dict[str, Any], score: float, metric: str) -> Iterable[str]:
    """The verdict and what to expect of the next person; of an earlier version's model, the score alone."""
    if isinstance(sentence := scores.get("verdict"), str) and sentence:
        yield markdown(sentence, SENTENCE)
    else:
        yield f"{metric.replace('_', ' ').capitalize()} {score:.3f} on people it has not seen."
        if scores.get("better_than_guessing") is False:
            yield "\n**It is not clearly better than guessing.**"
    with suppress(TypeError, ValueError):
        expected = NextPerson(**scores["next_person"]) if scores.get("next_person") else None
        if forecast := next_words(expected, str(scores.get("hold_out", "subject"))):
            yield f"\n{markdown(forecast, SENTENCE)}"
    unit = "each of these people" if scores.get("hold_out", "subject") == "subject" else "these windows"
    yield f"\nWhat predicted {unit} was neither trained on them nor chosen by their scores."


def _score(scores: dict[str, Any]) -> float | None:
    """Of people left out; a score by which the training was stopped is none."""
    value = scores.get("nested_test_mean")
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and value is not None else None


def some_of(values: Iterable[Any], most: int = 40) -> str:
    names = [str(value) for value in values]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(markdown, names[:most])) + more


def one_line_of(text: object, most: int = LETTERS) -> str:
    return printable(str(text))[:most]


def markdown(text: object, most: int = LETTERS) -> str:
    """As Markdown that shows the text and does nothing else."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", escape(one_line_of(text, most), quote=False))


def slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", one_line_of(text)).strip("-.")[:96] or "unnamed"
