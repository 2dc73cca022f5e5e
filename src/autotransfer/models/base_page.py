"""README.md beside a base: what it was made of, how its networks did on people left out, and how to start from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .model_page import TAGS, _line, _slug, _some, _text

if TYPE_CHECKING:
    from .base import BaseCard


def base_page(card: BaseCard) -> str:
    """A card as Hugging Face's hub reads it, YAML first."""
    head = {
        "library_name": "autotransfer",
        "tags": [*TAGS, "pretraining"],
        "datasets": [_slug(study["name"]) for study in card.studies],
    }
    # JSON is YAML, and leaves no name that could be read as anything but a name.
    front = "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return f"---\n{front}\n---\n\n# {_text(f'AutoTransfer base of {_line(card.name)}')}\n\n" + "\n".join(_body(card)) + "\n"


def _body(card: BaseCard) -> Iterable[str]:
    rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz"
    yield (
        f"{card.members} networks that were trained on {card.people} people of {len(card.studies)} studies, on windows "
        f"of {card.n_times} samples{rate} with the channels {_some(card.channels)}. A run on other people may start "
        "from them: what they make of a window is one candidate beside all others, and gets the weight that people "
        "left out give it."
    )
    yield "\n| study | people | windows | classes | score on people left out | chance |\n| --- | --- | --- | --- | --- | --- |"
    for study in card.studies:
        score, chance = (f"{value:.3f}" if isinstance(value := study.get(key), float) else "–" for key in ("score", "chance"))
        yield (
            f"| {_text(study['name'])} | {study.get('people')} | {study.get('windows')} | {_some(study['classes'])} "
            f"| {score} | {chance} |"
        )
    yield "\n```\nautotransfer run DATA --out RUN --base THIS_FOLDER\n```"
    yield (
        "\nIt holds fingerprints of some samples of every person, no signal and no name: a run refuses people whom the "
        "base has seen. Licences of the studies apply to what is made of them."
    )
