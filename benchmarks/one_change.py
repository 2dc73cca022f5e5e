"""One change at a time: every penalty and augmentation beside the same network without it.

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
import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.runs.csv_tables import as_it_was, harmless
from autotransfer.runs.options import RunOptions
from autotransfer.search.kinds import AVERAGED, PENALISED
from autotransfer.settings import Setting

COLUMNS = ("dataset", "part", "change", "reference", "subject", "seed", "score")
TOGETHER = 192  # trainings that are handed over at once, and lost where the program is killed
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
    for method, kind in CENSORS.items():
        for mode in ("marginal", "conditional"):
            if mode not in getattr(kind, "modes", ("marginal", "conditional")):
                continue
            aligned = method in ALIGNING and mode == "conditional"
            for strength in ALIGNED if aligned else kind.useful[1:]:
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


def rows_of(recordings: at.Recordings, change: Change, outcomes: Sequence[at.Outcome]) -> Iterator[dict[str, object]]:
    """Every training has two held-out people, whom it scores alike."""
    for outcome in outcomes:
        for one in (outcome, outcome.swapped):
            if one is not None and one.failure is None:
                values = (recordings.name, change.part, change.name, change.reference, one.job.fold.test_subject,
                          one.job.seed, round(one.test_score, 6))  # fmt: skip
                yield dict(zip(COLUMNS, values, strict=True))


def known(out: Path) -> set[tuple[str, str]]:
    """Data sets and changes that are done."""
    if not out.exists():
        return set()
    with out.open(newline="") as file:
        return {(as_it_was(row["dataset"]), as_it_was(row["change"])) for row in csv.DictReader(file)}


def append(out: Path, rows: Iterable[dict[str, object]]) -> None:
    begun = out.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not begun:
            writer.writeheader()
        writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)


def run(source: str, options: argparse.Namespace) -> None:
    recordings = at.load(source)
    epochs = options.epochs or RunOptions(source=recordings.name).for_data(recordings).max_epochs
    done = known(options.out)
    missing = [c for c in changes_of(recordings, options.parts, epochs) if (recordings.name, c.name) not in done]
    folds = at.leave_one_subject_out(recordings)
    each = len(folds) * options.seeds
    step = max(1, TOGETHER // each)
    for first in range(0, len(missing), step):
        own = missing[first : first + step]
        jobs = [at.Job(c.setting, fold, seed) for c in own for seed in range(options.seeds) for fold in folds]
        outcomes = at.train(recordings, jobs, options.device, progress=False)
        for place, change in enumerate(own):
            append(options.out, rows_of(recordings, change, outcomes[place * each : (place + 1) * each]))
        print(f"{recordings.name}: {first + len(own)} of {len(missing)} changes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="DATA", help=".npz, or anything that autotransfer.load takes")
    parser.add_argument("--out", type=Path, default=Path("changes.csv"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["penalties", "augmentations", "nuisances"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="default: as many as a run would have")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    for source in options.files:
        run(source, options)


if __name__ == "__main__":
    main()
