"""README.md beside a base: what it was made of, how its networks did on people left out, and how to start from it."""

from __future__ import annotations

from collections.abc import Iterable

from .base_card import BaseCard
from .model_page import TAGS, markdown, one_line_of, page, slug, some_of


def base_page(card: BaseCard) -> str:
    """A card as Hugging Face's hub reads it, YAML first."""
    head = {
        "library_name": "autotransfer",
        "tags": [*TAGS, "pretraining"],
        "datasets": [slug(study["name"]) for study in card.studies],
    }
    return page(f"AutoTransfer base of {one_line_of(card.name)}", head, _body(card))


def _body(card: BaseCard) -> Iterable[str]:
    rate = "" if card.sfreq is None else f" at {card.sfreq:g} Hz"
    yield (
        f"{card.members} networks that were trained on {card.people} people of {len(card.studies)} studies, on windows "
        f"of {card.n_times} samples{rate} with the channels {some_of(card.channels)}. A run on other people may start "
        "from them: what they make of a window is one candidate beside all others, and gets the weight that people "
        "left out give it."
    )
    yield "\n| study | people | windows | classes | score on people left out | chance |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for study in card.studies:
        score, chance = (
            f"{value:.3f}" if isinstance(value := study.get(key), float) else "–" for key in ("score", "chance")
        )
        name, classes = markdown(study["name"]), some_of(study["classes"])
        yield f"| {name} | {study.get('people')} | {study.get('windows')} | {classes} | {score} | {chance} |"
    yield "\n```\nautotransfer run DATA --out RUN --base THIS_FOLDER\n```"
    yield (
        "\nIt holds fingerprints of some samples of every person, no signal and no name: a run refuses people whom the "
        "base has seen. Licences of the studies apply to what is made of them."
    )
