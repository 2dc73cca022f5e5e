"""`--preprocessing`: how windows are best preprocessed and learned from, found by validation on every fold.

Standardisation moves scores more than any penalty does, and which kind is right differs from signal to signal. The
uncensored network is trained in each way on every fold and with every seed, because one seed errs by as much as the
ways differ. The search that follows tries its penalties on the best way, and on the plain one unless one of the two is
clearly ahead. For a person's own estimate all this is decided without their scores.

Every preprocessing is tried with training as published and with a constant learning rate and the last epoch kept.
Where an epoch has few steps, lr/√epoch ends learning too soon, and the loss of one validation subject rises with the
network's confidence while its accuracy still rises. Best epochs, which their own validation subject has picked, are
flattered beside last ones, so the comparison leans towards the published way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..model.encoders import ENCODERS
from ..runs.run import Run, Tell
from ..settings import Setting
from .stages import Score, mean_score, two_se_rule, without_subject
from .validation import entries_of, validation_scores

CONSTANT_LAST = {"schedule": "constant", "checkpoint": "last"}
# The plain way first. Beside it those that were the best on some recordings, by validation.
PREPROCESSINGS: dict[str, tuple[dict[str, Any], ...]] = {
    # nothing is asked of a new person
    "zero-shot": ({}, {"standardise": "train", "append_scale": True, "log_power": True}),
    # their unlabelled windows so far
    "online": (
        {},
        {"standardise": "online", "append_scale": True, "log_power": True},
        {"align": "online", "log_power": True},
    ),
    # all of them, later ones too
    "transductive": (
        {},
        {"standardise": "transductive", "append_scale": True, "log_power": True},
        {"align": "transductive", "log_power": True},
    ),
}


class Way(NamedTuple):
    """What of a setting is compared here; settings that agree in it are candidates of one way."""

    preprocessing: object
    network: object
    schedule: str
    checkpoint: str


def way_of(setting: Setting) -> Way:
    return Way(setting.preprocessing, setting.network, setting.training.schedule, setting.training.checkpoint)


class Compared(NamedTuple):
    """What the search goes on with."""

    tried: list[Setting]  # the plain one first
    scores: list[Score]  # of the tried, by their keys
    kept: list[Setting]  # for everybody
    of_test: dict[int, list[Setting]]  # for each test subject, found without their scores

    @property
    def needed(self) -> list[Setting]:
        """Kept for everybody or for somebody."""
        return list(dict.fromkeys([*self.kept, *(base for own in self.of_test.values() for base in own)]))

    def candidates(self, settings: Sequence[Setting]) -> list[Setting]:
        """The plain network, then every setting in every way that is needed."""
        found = [_in_way_of(base, setting) for base in self.needed for setting in settings]
        return list(dict.fromkeys([settings[0], *found]))

    def allowed(self, candidates: Sequence[Setting], test: int | None = None) -> list[str]:
        """Keys of the plain network, which is the first candidate, and of those whose way was kept for everybody, or
        for a test subject."""
        own = {way_of(base) for base in (self.kept if test is None else self.of_test[test])}
        return [setting.key for setting in candidates if setting is candidates[0] or way_of(setting) in own]


def _in_way_of(base: Setting, setting: Setting) -> Setting:
    own = {"schedule": base.training.schedule, "checkpoint": base.training.checkpoint}
    return setting.replace(preprocessing=base.preprocessing, network=base.network, **own)


def ways_to_try(name: str, plain: Setting) -> list[Setting]:
    """The plain setting in each way that its encoder can have, with training as published, then steady."""
    options = {name for kind in ENCODERS.values() for name in kind.__dataclass_fields__}
    read = set(ENCODERS[plain.encoder].__dataclass_fields__) if plain.encoder in ENCODERS else set()
    ways = [{n: v for n, v in way.items() if n not in options - read} for way in PREPROCESSINGS[name]]
    return list(dict.fromkeys(plain.replace(**way, **more) for more in ({}, CONSTANT_LAST) for way in ways))


def preprocessing_stage(run: Run, tell: Tell, *, shown: bool | None) -> Compared | None:
    """Train what is missing and choose; None where the settings say themselves how windows are preprocessed."""
    options, folds = run.options, run.folds()
    if options.preprocessing is None:
        return None
    tried = ways_to_try(options.preprocessing, options.settings()[0])
    run.add(run.entry("prepare", s, *fold, seed) for seed in options.every_seed for s in tried for fold in folds)
    tell(f"preprocessing: {len(tried)} kinds × {len(folds)} folds × {options.seeds} seed{'s' * (options.seeds > 1)}")
    run.work(shown=shown)
    scores = validation_scores(entries_of(run, tried, folds, options.every_seed))
    return compared(tried, scores, [test for _, test in folds])


def compared(tried: list[Setting], scores: list[Score], tests: Sequence[int]) -> Compared:
    """What to go on with, for everybody and for each test subject."""
    of_test = {test: _kept(tried, without_subject(scores, test)) for test in tests}
    return Compared(tried, scores, _kept(tried, scores), of_test)


def _kept(tried: Sequence[Setting], scores: Sequence[Score]) -> list[Setting]:
    """The plain way and the best other one, or one of the two where it is clearly ahead."""
    plain, *others = tried
    best = max(others, key=lambda setting: mean_score(scores, setting.key))
    if best.key in two_se_rule(scores, [plain.key, best.key]):
        return [best]
    if plain.key in two_se_rule(scores, [best.key, plain.key]):
        return [plain]
    return [plain, best]
