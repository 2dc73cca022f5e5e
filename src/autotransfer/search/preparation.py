"""`--prepare`: before any censor, how windows are best prepared, found by validation on every fold.

Standardisation moves scores more than any censor does, and which kind is right differs from signal to signal. The
uncensored network is trained with each preparation on every fold and with every seed, because one seed errs by as much
as preparations differ; the search that follows takes the first of the best. For a person's own estimate the preparation
is chosen without their scores: where that makes it another one, that one goes through the search as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..runs.run import Run, Tell
from ..settings import Setting
from .stages import Score, simplest, without_subject
from .validation import entries_of, validation_scores


class Traits(NamedTuple):
    """Fields of a setting that say how windows are prepared."""

    standardise: str
    align: str = "none"
    compress: float | None = None
    levels: bool = False
    power: bool = False


COMPRESS = 10.0
# How much better than a simpler one the best must be, in standard errors of the difference. Preparations differ by more
# than these err, unlike censors, so the odds need not be long: half an error is two to one.
CAUTION = 0.5
# The simplest of a kind first
ADAPTIVE = (
    Traits("running", power=True),
    Traits("running", levels=True, power=True),
    Traits("running", align="running", power=True),
    Traits("trial", align="running", power=True),
    Traits("trial"),
    Traits("trial", power=True),
    Traits("channel", levels=True, power=True),
)
AT_ONCE = {"running": "subject"}
PREPARATIONS = {
    # nothing is asked of a new person
    "zero-shot": (
        Traits("trial"),
        Traits("trial", power=True),
        Traits("channel", levels=True, power=True),
        Traits("channel", compress=COMPRESS, power=True),
        Traits("channel", power=True),
    ),
    # their unlabelled windows so far are used, unless that is worse
    "adaptive": ADAPTIVE,
    # all of them, later ones too
    "transductive": tuple(
        own._replace(standardise=AT_ONCE.get(own.standardise, own.standardise), align=AT_ONCE.get(own.align, own.align))
        for own in ADAPTIVE
    ),
}


class Preparations(NamedTuple):
    """What the search goes on with."""

    tried: list[Setting]
    scores: list[Score]  # of the tried, by their keys
    kept: list[Setting]  # the best first
    of_test: dict[int, Setting]  # for each test subject, the one chosen without their scores

    def prepared(self, settings: Sequence[Setting]) -> list[Setting]:
        """The plain network as it would be without all this, then every setting with every preparation that was
        kept, those with the best one first."""
        found = [_with(setting, traits(base)) for base in self.kept for setting in settings]
        return list(dict.fromkeys([settings[0], *found]))

    def allowed(self, candidates: Sequence[Setting], test: int | None = None) -> list[str]:
        """Keys of the plain network and of the candidates with the preparation that was chosen for everybody, or for
        a test subject."""
        own = traits(self.kept[0] if test is None else self.of_test[test])
        return [setting.key for setting in candidates if setting is candidates[0] or traits(setting) == own]


def traits(setting: Setting) -> Traits:
    return Traits(*(getattr(setting, name) for name in Traits._fields))


def _with(setting: Setting, own: Traits) -> Setting:
    return replace(setting, **own._asdict())


def preparations_of(name: str, plain: Setting) -> list[Traits]:
    """Those that the setting's encoder can have: how windows are read is EEGNet's own."""
    if plain.encoder == "eegnet":
        return list(PREPARATIONS[name])
    return list(dict.fromkeys(Traits(own.standardise, own.align) for own in PREPARATIONS[name]))


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
    """Kept are the best one and whichever is the best without some subject's scores."""
    by_key = {setting.key: setting for setting in tried}
    best = simplest(scores, list(by_key), CAUTION)
    of_test = {test: simplest(without_subject(scores, test), list(by_key), CAUTION) for test in tests}
    kept = dict.fromkeys([best, *of_test.values()])
    return Preparations(tried, scores, [by_key[key] for key in kept], {t: by_key[key] for t, key in of_test.items()})
