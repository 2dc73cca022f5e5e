"""What a base of other studies is worth on the eight armband sets: each is the target once, the base is of the others.
Other families are named by --sets and --targets.

    python -m benchmarks.pretraining --data FOLDER --out FOLDER [--targets emg_uci,emg_minimal] [--device cuda]

People of the target are held out in five groups. What trains are 2, 5, 10 or all of the others. Compared on the same
people, by the mean over them of balanced accuracy:

    closed      closed forms of the target alone, averaged
    base        a linear classifier on what the base makes of a window; random_base: of networks that nobody trained
    network     a network trained on the target alone
    tuned_base  a network that starts from the base and learns on, as a run has it; scratch_base: the same from scratch
    pooled      a network trained on the target and on windows of other studies whose gestures have the same names
    joint       a network with a head for each study, trained on all studies and the target at once
    a+b         their log-probabilities, averaged

--out gets pretraining.csv, a row for each person; it is written again after every target.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import autotransfer as at
from autotransfer.files import write_atomically
from autotransfer.folds import Fold
from autotransfer.models.base import Base
from autotransfer.pretraining.pretrain import SETTING, pretrain
from autotransfer.pretraining.studies import Studies
from autotransfer.runs.csv_tables import csv_of
from autotransfer.search.kinds import AVERAGED, LINEAR, SHRINKAGES, SLOWER, closed_forms
from autotransfer.training.batches import epochs_for
from autotransfer.training.metrics import balanced_accuracy_of

SETS = (
    "emg_electrode_shift", "emg_minimal", "emg_myo_eval", "emg_uci", "emg_myodisco", "emg_myo_pretrain", "emg_longterm",
    "emg_myo_readings",
)  # fmt: skip
FOLDS = 5
PEOPLE: tuple[int | None, ...] = (2, 5, 10, None)  # of the target, that train; None: all
ADAPTATIONS = ("zero-shot", "transductive")
NETWORK_PEOPLE: tuple[int | None, ...] = (5, None)  # networks cost more
MOST = 6000  # windows of a study, spread over people and classes
# Names of the same gesture in different studies.
GESTURES = {
    "rest": ("hibernation", "neutral", "z_rest", "M1", "hand at rest", "No_Motion"),
    "flexion": ("flexion", "wrist flexion", "Wrist_Flexion", "M2"),
    "extension": ("extension", "wrist extension", "Wrist_Extension", "M3"),
    "radial": ("radial deviation", "M4"),
    "ulnar": ("ulnar deviation", "M5"),
    "pronation": ("pronation", "M6"),
    "supination": ("supination", "M7"),
    "close": ("fist", "hand close", "hand_close", "Hand_Close", "M8"),
    "open": ("hand open", "hand_open", "Hand_Open"),
}
CALLED = {name: gesture for gesture, names in GESTURES.items() for name in names}
Rows = NDArray[np.int64]
LogProbs = NDArray[np.float64]


def thinned(recordings: at.Recordings) -> at.Recordings:
    """At most MOST windows, as many of each person and class as of others where they have them."""
    if recordings.n_trials <= MOST:
        return recordings
    cells = (recordings.subject * recordings.n_classes + recordings.y).numpy()
    most_of_cell = MOST // len(np.unique(cells))
    kept = []
    for cell in np.unique(cells):
        rows = np.flatnonzero(cells == cell)
        kept.append(rows[np.unique(np.linspace(0, len(rows) - 1, min(most_of_cell, len(rows))).round().astype(int))])
    rows = np.sort(np.concatenate(kept))
    return at.Recordings(
        recordings.X[rows], recordings.y[rows], recordings.subject[rows], sfreq=recordings.sfreq,
        channels=recordings.channels, classes=recordings.classes, subjects=recordings.subjects, name=recordings.name,
        ring=recordings.ring,
    )  # fmt: skip


def folds_of(recordings: at.Recordings, people: Sequence[int | None]) -> Iterator[tuple[int, int | None, Rows, Rows]]:
    """(fold, people, rows that train, rows of people held out); who trains first is the same for every number."""
    subject = recordings.subject.numpy()
    order = np.random.default_rng(0).permutation(recordings.n_subjects)
    for number in range(FOLDS):
        held_out = order[number::FOLDS]
        others = [person for person in order if person not in held_out]
        for many in people:
            if many is None or many < len(others):
                train = np.isin(subject, others[:many])
                yield number, many, np.flatnonzero(train), np.flatnonzero(np.isin(subject, held_out))


class Target:
    """One set as the target, and the log-probabilities of its people by every model."""

    def __init__(self, recordings: at.Recordings, device: str) -> None:
        self.recordings, self.device = recordings, device
        self.log_probs: dict[tuple[str, str, int, int | None], LogProbs] = {}  # adaptation, model, fold, people
        self.rows = {number: test for number, _, _, test in folds_of(recordings, [None])}

    def solve(self, adaptation: str, model: str, settings: Sequence[at.Setting]) -> None:
        """Closed forms, averaged."""
        where = list(folds_of(self.recordings, PEOPLE))
        jobs = [at.Job(setting, Fold(train, test=test)) for setting in settings for _, _, train, test in where]
        outcomes = at.train(self.recordings, jobs, device=self.device, progress=False)
        for place, (number, many, _, _) in enumerate(where):
            log_probs = [o.held_out_log_probs.double().numpy() for o in outcomes[place :: len(where)]]
            self.log_probs[adaptation, model, number, many] = np.mean(log_probs, 0)

    def learn(
        self, adaptation: str, model: str, pool: at.Recordings, rows: Rows, y: Any, values: dict[str, Any]
    ) -> None:
        """A network on a pool, of which `rows` (n,) are the windows of the target; y: the target's classes among those
        of the pool. Everything else of the pool trains as well."""
        others = np.setdiff1d(np.arange(pool.n_trials), rows)
        where = list(folds_of(self.recordings, NETWORK_PEOPLE))
        folds = [Fold(np.sort(np.concatenate([others, rows[train]])), test=rows[test]) for _, _, train, test in where]
        epochs = epochs_for(max(len(fold.train) for fold in folds), 128, values.pop("steps"))
        setting = at.Setting(**{"encoder": "shallow"} | AVERAGED | values, max_epochs=epochs)
        jobs = [at.Job(setting, fold) for fold in folds]
        outcomes = at.train(pool, jobs, self.device, progress=False)
        for (number, many, _, _), outcome in zip(where, outcomes, strict=True):
            log_probs = outcome.held_out_log_probs.double()[:, y].log_softmax(-1).numpy()
            self.log_probs[adaptation, model, number, many] = log_probs

    def mixtures(self, names: Sequence[str]) -> None:
        """a+b+c: the mean of their log-probabilities, where all have been."""
        for name in names:
            parts = name.split("+")
            for adaptation, model, number, many in list(self.log_probs):
                keys = [(adaptation, part, number, many) for part in parts]
                if model == parts[0] and all(key in self.log_probs for key in keys):
                    self.log_probs[adaptation, name, number, many] = np.mean([self.log_probs[key] for key in keys], 0)

    def scores(self) -> list[dict[str, Any]]:
        y, subject = self.recordings.y.numpy(), self.recordings.subject.numpy()
        scores = []
        for (adaptation, model, number, many), log_probs in self.log_probs.items():
            rows = self.rows[number]
            for person in np.unique(subject[rows]):
                windows = subject[rows] == person
                predicted = log_probs[windows].argmax(1)
                score = balanced_accuracy_of(predicted, y[rows][windows], self.recordings.n_classes)
                scores.append({
                    "target": self.recordings.name, "adaptation": adaptation, "model": model,
                    "people": "all" if many is None else many, "subject": str(self.recordings.subjects[person]),
                    "score": score,
                })  # fmt: skip
        return scores


def of_base(names: dict[str, str], kind: str, adaptation: str) -> list[at.Setting]:
    """As a run has them: see search.kinds."""
    values = LINEAR | {"represent": names[kind]}
    forms = [values] if adaptation == "zero-shot" else [values, values | {"centre": adaptation}]
    return [at.Setting(**form, shrinkage=much) for form in forms for much in SHRINKAGES]


def pooled_by_name(studies: Studies, target: str) -> tuple[at.Recordings, Rows]:
    """The target's windows and those of other studies whose gestures have its names, with its classes alone."""
    pool, place = studies.recordings, studies.names.index(target)
    classes = [str(label) for name, label in studies.classes if name == target]
    number = {CALLED[label]: place for place, label in enumerate(classes) if label in CALLED}
    study = np.array(pool.heads)[pool.y.numpy()]
    labels = [(name == target, str(label)) for name, label in studies.classes]
    as_target = np.array([
        classes.index(label) if is_target else number.get(CALLED.get(label, ""), -1) for is_target, label in labels
    ])[pool.y.numpy()]  # fmt: skip
    kept = np.flatnonzero(as_target >= 0)
    pooled = at.Recordings(
        pool.X[kept], as_target[kept], pool.subject[kept], sfreq=pool.sfreq, channels=pool.channels, classes=classes,
        ring=pool.ring, name="pooled",
    )  # fmt: skip
    return pooled, np.flatnonzero(study[kept] == place)


def measure(
    name: str, sets: dict[str, at.Recordings], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], Base]:
    target = Target(sets[name], options.device)
    start = time.perf_counter()

    def lap(what: str) -> None:
        print(f"{name}: {what} after {time.perf_counter() - start:.0f} s", flush=True)

    rest = [recordings for other, recordings in sets.items() if other != name]
    base = pretrain(
        Studies(rest), options.out / f"base-{name}", members=options.members, device=options.device, seed=options.seed,
        progress=False,
    )  # fmt: skip
    base.check_new(sets[name])
    names = base.bind(sets[name])
    lap("base")
    for adaptation in ADAPTATIONS:
        forms = closed_forms(adaptation, sets[name])
        # Without those that turn the ring, which take their time.
        target.solve(adaptation, "closed", [form for form in forms if "turn" not in form.to_dict()])
        for kind in ("base", "random_base"):
            target.solve(adaptation, kind, of_base(names, kind, adaptation))
        lap(f"closed forms, {adaptation}")
    if not options.solved:
        steps = options.steps
        for adaptation, scale in (("zero-shot", "train"), ("transductive", "transductive")):
            rows = np.arange(sets[name].n_trials)
            y = np.arange(sets[name].n_classes)
            target.learn(adaptation, "network", sets[name], rows, y, {"standardise": scale, "steps": steps})
        lap("networks of the target alone")
        scratch = base.start(sets[name]) | {"start": None}
        tuned = base.start(sets[name]) | {"encoder_lr": SLOWER * at.Setting().training.lr}
        for model, values in (("tuned_base", tuned), ("scratch_base", scratch)):
            target.learn("zero-shot", model, sets[name], rows, y, values | {"steps": steps})
        lap("networks that start from the base, and from scratch")
        every = Studies([sets[name], *rest])
        y = np.arange(sets[name].n_classes)
        fixed = {key: value for key, value in SETTING.items() if key not in ("encoder", *AVERAGED)}
        if every.n_times == round(sets[name].n_times * (every.sfreq or 1) / (sets[name].sfreq or 1)):
            target.learn("zero-shot", "joint", every.recordings, rows, y, fixed | {"steps": 2 * steps})
            lap("joint")
            pool, rows = pooled_by_name(every, name)
            if len(rows) < pool.n_trials:  # others have gestures of these names
                target.learn("zero-shot", "pooled", pool, rows, y, fixed | {"steps": steps})
                lap("pooled")
            # They use nothing of a new person, and may be averaged with what does.
            for (adaptation, model, number, many), log_probs in list(target.log_probs.items()):
                if model in ("joint", "pooled", "tuned_base", "scratch_base") and adaptation == "zero-shot":
                    target.log_probs["transductive", model, number, many] = log_probs
    target.mixtures([
        "closed+base", "closed+random_base", "closed+network", "closed+network+base", "closed+joint", "closed+pooled",
        "closed+network+joint", "closed+network+base+joint", "closed+tuned_base", "closed+scratch_base",
        "closed+network+base+tuned_base", "closed+network+base+scratch_base",
    ])  # fmt: skip
    lap("done")
    return target.scores(), base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the .npz files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--targets", default=",".join(SETS), help="sets that are the target in turn, with commas")
    parser.add_argument("--sets", default=",".join(SETS), help="sets that bases are made of, with commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--members", type=int, default=10, help="networks of a base")
    parser.add_argument("--steps", type=int, default=2500, help="of networks of the target alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solved", action="store_true", help="without networks of the target")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    if options.device == "cpu":
        torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    sets = {name: thinned(at.load(options.data / f"{name}.npz")) for name in options.sets.split(",")}
    for name in options.targets.split(","):
        scores, base = measure(name, sets, options)
        rows += [row | {"seed": options.seed, "base_people": base.card.people} for row in scores]
        table = pd.DataFrame(rows)
        write_atomically(options.out / "pretraining.csv", csv_of(table))
        means = table[table.target == name].groupby(["adaptation", "people", "model"], sort=False).score.mean()
        print(means.unstack("people").round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
