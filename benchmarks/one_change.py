"""One change at a time: every penalty and augmentation compared with the same network without it.

    python -m benchmarks.one_change DATA... --out changes.csv [--parts penalties augmentations nuisances control
        preprocessing]

The network is the EEGNet that a zero-shot run averages; `preprocessing` trains it on windows as published. Every person
is left out once, and scored by the networks that left them out, for which nothing was chosen: they keep averaged
weights. A penalty is compared with the same network in the same batches, an augmentation with it in shuffled ones.
What is in the CSV is not trained again.
`python -m benchmarks.results` makes a table of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.runs.options import RunOptions, resolved
from autotransfer.search.kinds import AVERAGED, PENALISED
from autotransfer.settings import Setting

from .csv_rows import Known, Rows, append_missing, command

COLUMNS = ("dataset", "part", "change", "reference", "subject", "seed", "score")
TOGETHER = 192  # trainings that are handed over at once, and lost where the program is killed
METHODS = [(name, mode) for name in CENSORS for mode in ("marginal", "conditional")]
ALIGNING = ("mmd", "pairwise_mmd", "coral", "hsic", "cauchy_schwarz")  # met at 1, 3 and 10 where conditional
ALIGNED = (1.0, 3.0, 10.0)
CONTROLLED = ("conditional",)  # modes that the control repeats with shuffled subjects


class Change(NamedTuple):
    part: str
    name: str
    setting: Setting
    reference: str = ""  # the name of what it is compared with; "": it is a reference itself


def base(epochs: int) -> Setting:
    return Setting(**PENALISED["zero-shot"][0] | AVERAGED, max_epochs=epochs)


def references(plain: Setting) -> list[Change]:
    return [Change("reference", kind, plain.replace(batches=kind)) for kind in ("shuffled", "balanced", "people")]


def penalties(plain: Setting, recordings: at.Recordings) -> Iterator[Change]:
    """Each method, marginal and conditional where it has these modes: at the stronger of its two useful strengths, and
    from 1 to 10 where a conditional one aligns."""
    for method, mode in METHODS:
        aligned = method in ALIGNING and mode == "conditional"
        for strength in ALIGNED if aligned else CENSORS[method].useful[1:]:
            yield _penalised("penalties", plain, method=method, mode=mode, strength=strength)


def control(plain: Setting, recordings: at.Recordings) -> Iterator[Change]:
    """The same with subjects shuffled within class."""
    for change in penalties(plain, recordings):
        if change.setting.mode in CONTROLLED:
            yield Change("control", f"{change.name} shuffled", change.setting.replace(shuffle_subjects=True),
                         change.reference)  # fmt: skip


def nuisances(plain: Setting, recordings: at.Recordings) -> Iterator[Change]:
    """Sessions as the nuisance, and those of each person, where there are several."""
    if recordings.session is None or len(set(recordings.session.tolist())) < 2:
        return
    for nuisance in ("session", "subject+session"):
        for method in ("mmd", "adversary"):
            strength = CENSORS[method].useful[1]
            yield _penalised(
                "nuisances", plain, method=method, mode="conditional", strength=strength, nuisance=nuisance
            )


def augmentations(plain: Setting, recordings: at.Recordings) -> Iterator[Change]:
    """Each as the grid of augmentations has it, where the recordings allow it."""
    for name, kind in AUGMENTATIONS.items():
        if kind.needs_ring and recordings.ring is None:
            continue
        for value in kind.values_tried():
            yield Change("augmentations", f"{name} {value}", plain.replace(**{name: value}), "shuffled")


def preprocessing(plain: Setting, recordings: at.Recordings) -> Iterator[Change]:
    """The preprocessing of the published network with this one's training."""
    published = plain.replace(standardise="trial", append_scale=False, log_power=False)
    yield Change("preprocessing", "as published", published, "shuffled")


def _penalised(part: str, plain: Setting, **penalty: object) -> Change:
    setting = plain.replace(**penalty, batches="auto")
    name = " ".join([setting.name, *([str(penalty["nuisance"])] if "nuisance" in penalty else [])])
    return Change(part, name, setting, setting.training.batches)


PARTS = {
    "penalties": penalties, "control": control, "augmentations": augmentations, "nuisances": nuisances,
    "preprocessing": preprocessing,
}  # fmt: skip


def changes_of(recordings: at.Recordings, parts: Iterable[str], epochs: int) -> list[Change]:
    plain = base(epochs)
    return [*references(plain), *(change for part in parts for change in PARTS[part](plain, recordings))]


def rows_of(recordings: at.Recordings, change: Change, outcomes: Sequence[at.Outcome]) -> Iterator[tuple[Any, ...]]:
    """COLUMNS. Every training has two held-out people, whom it scores alike."""
    for outcome in outcomes:
        for side in (outcome, outcome.swapped):
            if side is not None and side.failure is None:
                yield (recordings.name, change.part, change.name, change.reference, side.job.fold.test_subject,
                       side.job.seed, round(side.test_score, 6))  # fmt: skip


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    epochs = options.epochs or resolved(RunOptions(source=recordings.name), recordings).max_epochs
    done = {row["change"] for row in known}
    missing = [change for change in changes_of(recordings, options.parts, epochs) if change.name not in done]
    folds = at.leave_one_subject_out(recordings)
    trainings = len(folds) * options.seeds  # of each change
    step = max(1, TOGETHER // trainings)
    for first in range(0, len(missing), step):
        changes = missing[first : first + step]
        jobs = [at.Job(c.setting, fold, seed) for c in changes for seed in range(options.seeds) for fold in folds]
        outcomes = at.train(recordings, jobs, options.device, progress=False)
        for place, change in enumerate(changes):
            yield list(rows_of(recordings, change, outcomes[place * trainings : (place + 1) * trainings]))


def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, measured, "dataset", "change", "subject")


def main() -> None:
    parser = command(__doc__, "changes.csv", "seeds", "epochs", "device")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["penalties", "augmentations", "nuisances"])
    run(parser.parse_args())


if __name__ == "__main__":
    main()
