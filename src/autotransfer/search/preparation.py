"""`--prepare`: how windows are best prepared and learned from, found by validation on every fold.

Standardisation moves scores more than any censor does, and which kind is right differs from signal to signal. The
uncensored network is trained with each preparation on every fold and with every seed, because one seed errs by as much
as preparations differ. The search that follows tries its censors on the best preparation, and on the plain one unless
one of the two is clearly ahead. For a person's own estimate all this is decided without their scores.

Every preparation is tried with training as published and with steady training: a learning rate that does not fall, and
the last epoch kept. Where an epoch has few steps, lr/√epoch ends learning too soon, and the loss of one validation
subject rises with the network's confidence while its accuracy still rises. Best epochs, which their own validation
subject has picked, are flattered beside last ones, so the comparison leans towards the published way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..runs.run import Run, Tell
from ..settings import Setting
from .stages import Score, clearly_ahead, mean_score, without_subject
from .validation import entries_of, validation_scores


class Traits(NamedTuple):
    """Fields of a setting that say how windows are prepared and how they are learned from."""

    standardise: str
    align: str = "none"
    compress: float | None = None
    levels: bool = False
    power: bool = False
    schedule: str = "inverse_sqrt"
    keep: str = "best"


def _steadily(*kinds: Traits) -> tuple[Traits, ...]:
    """These, and the same with a learning rate that does not fall and the last epoch kept."""
    return (*kinds, *(own._replace(schedule="constant", keep="last") for own in kinds))


# The plain one first. Beside it those that were the best on some recordings, by validation.
ADAPTIVE = _steadily(
    Traits("trial"),
    Traits("running", levels=True, power=True),
    Traits("trial", align="running", power=True),
)
AT_ONCE = {"running": "subject"}
PREPARATIONS = {
    # nothing is asked of a new person
    "zero-shot": _steadily(Traits("trial"), Traits("channel", levels=True, power=True)),
    # their unlabelled windows so far
    "adaptive": ADAPTIVE,
    # all of them, later ones too
    "transductive": tuple(
        own._replace(standardise=AT_ONCE.get(own.standardise, own.standardise), align=AT_ONCE.get(own.align, own.align))
        for own in ADAPTIVE
    ),
}


class Preparations(NamedTuple):
    """What the search goes on with."""

    tried: list[Setting]  # the plain one first
    scores: list[Score]  # of the tried, by their keys
    kept: list[Setting]  # for everybody
    of_test: dict[int, list[Setting]]  # for each test subject, found without their scores

    @property
    def needed(self) -> list[Setting]:
        """Kept for everybody or for somebody."""
        return list(dict.fromkeys([*self.kept, *(base for own in self.of_test.values() for base in own)]))

    def prepared(self, settings: Sequence[Setting]) -> list[Setting]:
        """The plain network, then every setting with every preparation that is needed."""
        found = [_with(setting, traits(base)) for base in self.needed for setting in settings]
        return list(dict.fromkeys([settings[0], *found]))

    def allowed(self, candidates: Sequence[Setting], test: int | None = None) -> list[str]:
        """Keys of the plain network, which is the first candidate, and of those whose preparation was kept for
        everybody, or for a test subject."""
        own = {traits(base) for base in (self.kept if test is None else self.of_test[test])}
        return [setting.key for setting in candidates if setting is candidates[0] or traits(setting) in own]


def traits(setting: Setting) -> Traits:
    return Traits(*(getattr(setting, name) for name in Traits._fields))


def _with(setting: Setting, own: Traits) -> Setting:
    return replace(setting, **own._asdict())


def preparations_of(name: str, plain: Setting) -> list[Traits]:
    """Those that the setting's encoder can have: how windows are read is EEGNet's own."""
    if plain.encoder == "eegnet":
        return list(PREPARATIONS[name])
    return list(dict.fromkeys(own._replace(compress=None, levels=False, power=False) for own in PREPARATIONS[name]))


def preparation_stage(run: Run, tell: Tell, *, shown: bool | None) -> Preparations | None:
    """Train what is missing and choose; None where the settings say themselves how windows are prepared."""
    options, folds = run.options, run.folds()
    if options.prepare is None:
        return None
    plain = options.settings()[0]
    tried = [_with(plain, own) for own in preparations_of(options.prepare, plain)]
    run.add(run.entry("prepare", s, *fold, seed) for seed in options.every_seed for s in tried for fold in folds)
    tell(f"preparation: {len(tried)} kinds × {len(folds)} folds × {options.seeds} seeds")
    run.work(shown=shown)
    scores = validation_scores(entries_of(run, tried, folds, options.every_seed))
    return chosen(tried, scores, [test for _, test in folds])


def chosen(tried: list[Setting], scores: list[Score], tests: Sequence[int]) -> Preparations:
    """What to go on with, for everybody and for each test subject."""
    of_test = {test: _kept(tried, without_subject(scores, test)) for test in tests}
    return Preparations(tried, scores, _kept(tried, scores), of_test)


def _kept(tried: Sequence[Setting], scores: Sequence[Score]) -> list[Setting]:
    """The plain preparation and the best other one, or one of the two where it is clearly ahead."""
    plain, *others = tried
    best = max(others, key=lambda setting: mean_score(scores, setting.key))
    if best.key in clearly_ahead(scores, [plain.key, best.key]):
        return [best]
    if plain.key in clearly_ahead(scores, [best.key, plain.key]):
        return [plain]
    return [plain, best]
