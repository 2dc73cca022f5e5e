"""Score published baselines with their own libraries on the folds of default runs.

    python -m benchmarks.field DATA.npz... --baselines catch22 libemg [--out docs/results/baselines/field.csv]

The protocol was fixed before the first run. Folds are the folds of a default run (single subjects up to 20 subjects,
otherwise ten groups), and baselines without model selection are also fitted on the validation group. Scores are
balanced accuracies of each subject with windows of two classes. Baselines have the constants of their libraries or of
their publications; no other constants were tried on these sets. Each baseline is scored zero-shot and, if it can use
unlabeled windows, transductive (z-scored, standardized, centered or aligned by subject) or online. Random baselines
have one seed unless `--seeds` is given; the tables average seeds.

A row of the CSV is one subject, baseline, adaptation and seed. Existing rows are not computed again, so an interrupted
command can be repeated. A baseline for another signal is skipped, unless it is the only one requested. In
baselines/libraries.csv, LDA, pyRiemann and networks hold out single subjects.

Install `pip install '.[baselines]'`. LibEMG requires an older NumPy than aeon; install it with `pip install librosa
PyWavelets` and `pip install --no-deps libemg`.
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

from .csv_rows import KnownRow, Rows, append_missing, build_parser
from .field_baselines import BASELINES, make_folds
from .shallow import make_task

COLUMNS = ("dataset", "baseline", "adaptation", "kind", "subject", "score", "seed", "family", "seconds")
OUT = "docs/results/baselines/field.csv"


def evaluate(
    recordings: at.Recordings, family: str, seed: int, *, skip: set[str], device: str = "cpu"
) -> Iterator[Rows]:
    """Yield the rows of each fold, without the subjects in `skip`."""
    scored, names = set(scorable_subjects(recordings)), recordings.subjects
    y, subject = recordings.y.numpy(), recordings.subject.numpy()
    scored_in = {fold.key: sorted(scored & set(subject[fold.test].tolist())) for fold in make_folds(recordings)}
    folds = [f for f in make_folds(recordings) if any(str(names[k]) not in skip for k in scored_in[f.key])]
    if not folds:
        return
    predict = BASELINES[family].prepare(recordings, seed, device)
    kind = "specialist" if BASELINES[family].signals else "generic"
    for fold in folds:
        start, rows = time.perf_counter(), []
        for baseline, adaptation, classes in predict(make_task(recordings, fold, seed)):
            seconds = time.perf_counter() - start
            for k in scored_in[fold.key]:
                is_subject = subject[fold.test] == k
                truth = y[fold.test][is_subject]
                score = balanced_accuracy_of(classes[is_subject], truth, recordings.n_classes)
                keys = (recordings.name, baseline, adaptation, kind, str(names[k]))
                rows.append((*keys, round(score, 5), seed, family, round(seconds, 2)))
            start = time.perf_counter()
        yield rows


def evaluate_missing(recordings: at.Recordings, options: argparse.Namespace, known: list[KnownRow]) -> Iterator[Rows]:
    suitable = [family for family in options.baselines if BASELINES[family].signals in ((), (find_signal(recordings),))]
    for family in suitable or (options.baselines if len(options.baselines) == 1 else ()):
        for seed in range(options.seeds if BASELINES[family].random else 1):
            skip = {row["subject"] for row in known if (row["family"], row["seed"]) == (family, str(seed))}
            try:
                yield from evaluate(recordings, family, seed, skip=skip, device=options.device)
            except UserError as error:
                print(f"{recordings.name}, {family}: skipped: {error}", flush=True)


def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, evaluate_missing, "dataset", "baseline", "adaptation", "subject")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = build_parser(__doc__, OUT, "seeds", "device")
    parser.set_defaults(device="cpu")
    parser.add_argument("--baselines", nargs="+", choices=BASELINES, default=list(BASELINES))
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
