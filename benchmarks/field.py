"""Baselines of the field by their own libraries, compared with default runs.

    python -m benchmarks.field DATA.npz... --baselines catch22 libemg [--out docs/results/field.csv]

The protocol was fixed before anything was run. Subjects are held out as runs hold them out (`--folds auto`: each alone
up to 20 subjects, ten groups above), and baselines that select nothing are also fitted on the validation group. Scores
are balanced accuracies of each subject with windows of two classes. Baselines and their constants are those of the
libraries, or as published; none was tried with other constants on these sets. FBCCA came later, with the published
weights; TRCA is left out if windows do not begin at one phase of their stimulus. Each baseline is scored zero-shot and,
if it can use unlabeled windows, transductive (z-scored, standardized or aligned by subject). Random baselines have one
seed unless `--seeds` says otherwise; the tables average them.

A row of the CSV is one subject, baseline, adaptation and seed. Rows that are there are not computed again, so an
interrupted command is simply repeated. A baseline that is not meant for a signal is left out, unless it is the only one
asked for. Install `pip install '.[baselines]'`; LibEMG, whose release needs an older NumPy than aeon, with `pip install
librosa PyWavelets` and `pip install --no-deps libemg`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import scorable_subjects
from autotransfer.search.candidates import find_signal
from autotransfer.training.metrics import balanced_accuracy_of

from .csv_rows import Known, Rows, append_missing, command
from .field_baselines import BASELINES, folds_of
from .shallow import task_of

COLUMNS = ("set", "baseline", "adaptation", "person", "score", "seed", "family", "seconds")
OUT = "docs/results/field.csv"


def evaluate(
    recordings: at.Recordings, family: str, seed: int, *, skip: set[str], device: str = "cpu"
) -> Iterator[Rows]:
    """Yield the rows of one fold after the other, but for the subjects in `skip`."""
    scored, names = set(scorable_subjects(recordings)), recordings.subjects
    y, who = recordings.y.numpy(), recordings.subject.numpy()
    people = {fold.key: sorted(scored & set(who[fold.test].tolist())) for fold in folds_of(recordings)}
    left = [f for f in folds_of(recordings) if any(str(names[person]) not in skip for person in people[f.key])]
    if not left:
        return
    predict = BASELINES[family].ready(recordings, seed, device)
    for fold in left:
        start, rows = time.perf_counter(), []
        for baseline, adaptation, classes in predict(task_of(recordings, fold, seed)):
            seconds = time.perf_counter() - start
            for person in people[fold.key]:
                rows_of_person = who[fold.test] == person
                truth = y[fold.test][rows_of_person]
                score = balanced_accuracy_of(classes[rows_of_person], truth, recordings.n_classes)
                whose = (recordings.name, baseline, adaptation, str(names[person]))
                rows.append((*whose, round(score, 5), seed, family, round(seconds, 2)))
            start = time.perf_counter()
        yield rows


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    meant = [family for family in options.baselines if BASELINES[family].signals in ((), (find_signal(recordings),))]
    for family in meant or (options.baselines if len(options.baselines) == 1 else ()):
        for seed in range(options.seeds if BASELINES[family].random else 1):
            skip = {row["person"] for row in known if (row["family"], row["seed"]) == (family, str(seed))}
            try:
                yield from evaluate(recordings, family, seed, skip=skip, device=options.device)
            except UserError as error:
                print(f"{recordings.name}, {family}: left out: {error}", flush=True)


def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, measured, "set", "baseline", "adaptation", "person")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, OUT, "seeds", "device")
    parser.set_defaults(device="cpu")
    parser.add_argument("--baselines", nargs="+", choices=BASELINES, default=list(BASELINES))
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
