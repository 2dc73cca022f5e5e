"""Peers of the field, compared with runs as they ship:

    python -m benchmarks.field DATA.npz... --peers catch22 libemg [--out docs/results/field.csv]

Protocol, fixed before anything was run. People are held out as runs hold them out (`--folds auto`: everybody alone up
to 20 people, ten groups above), so every person is scored by a model that had as many others, or more: peers that stop
by nothing learn from the validation group as well. Scores are balanced accuracies of each person who has windows of two
classes. Peers and their constants are those of the libraries, or as published (benchmarks/field_peers.py says what
they are); none was tried with other constants on these sets. FBCCA came later, when CCA's scores were known, with the
published weights; TRCA is left out where windows do not begin at one phase of their stimulus, because it answered at
chance there. Each is scored with nothing known of a person (zero-shot) and, where it can use unlabelled windows, with
all of theirs (transductive: z-scored, standardised or aligned by person). The best peer of a set is picked on these
very scores, which flatters it. Random peers have one seed unless `--seeds` says otherwise; the tables average them.

One row of the CSV is one person, peer, adaptation and seed. Rows that are there are not computed again, and the rows of
a fold are written together: an interrupted command is simply repeated. A peer that is not meant for a signal is left
out, unless it is the only one asked for. Needs `pip install '.[peers]'`; LibEMG, whose release needs an
older NumPy than aeon, with `pip install librosa PyWavelets` and `pip install --no-deps libemg`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import autotransfer as at
from autotransfer.errors import UserError
from autotransfer.folds import scorable
from autotransfer.search.kinds import signal_of
from autotransfer.training.metrics import balanced_accuracy_of

from .csv_rows import Known, Rows, append_missing, command
from .field_peers import PEERS, folds_of
from .shallow import task_of

COLUMNS = ("set", "peer", "adaptation", "person", "score", "seed", "family", "seconds")
OUT = "docs/results/field.csv"


def evaluate(
    recordings: at.Recordings, family: str, seed: int, *, skip: set[str], device: str = "cpu"
) -> Iterator[Rows]:
    """The rows of one fold after the other. skip: people who are known already."""
    scored, names = set(scorable(recordings)), recordings.subjects
    y, who = recordings.y.numpy(), recordings.subject.numpy()
    people = {fold.key: sorted(scored & set(who[fold.test].tolist())) for fold in folds_of(recordings)}
    left = [f for f in folds_of(recordings) if any(str(names[person]) not in skip for person in people[f.key])]
    if not left:
        return
    predict = PEERS[family].ready(recordings, seed, device)
    for fold in left:
        start, rows = time.perf_counter(), []
        for peer, adaptation, classes in predict(task_of(recordings, fold, seed)):
            seconds = time.perf_counter() - start
            for person in people[fold.key]:
                rows_of_person = who[fold.test] == person
                truth = y[fold.test][rows_of_person]
                score = balanced_accuracy_of(classes[rows_of_person], truth, recordings.n_classes)
                whose = (recordings.name, peer, adaptation, str(names[person]))
                rows.append((*whose, round(score, 5), seed, family, round(seconds, 2)))
            start = time.perf_counter()
        yield rows


def measured(recordings: at.Recordings, options: argparse.Namespace, known: list[Known]) -> Iterator[Rows]:
    meant = [family for family in options.peers if PEERS[family].signals in ((), (signal_of(recordings),))]
    for family in meant or (options.peers if len(options.peers) == 1 else ()):
        for seed in range(options.seeds if PEERS[family].random else 1):
            skip = {row["person"] for row in known if (row["family"], row["seed"]) == (family, str(seed))}
            try:
                yield from evaluate(recordings, family, seed, skip=skip, device=options.device)
            except UserError as error:
                print(f"{recordings.name}, {family}: left out: {error}", flush=True)


def run(options: argparse.Namespace) -> None:
    append_missing(options, COLUMNS, measured, "set", "peer", "adaptation", "person")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command(__doc__, OUT, "seeds", "device")
    parser.set_defaults(device="cpu")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
