"""Several studies at once: pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .running import OnCluster
from .voice import Log, Quiet, Verbose, say


def pretrain(
    data: Annotated[
        list[str],
        Argument(metavar="DATA…", help="Two or more data sets, each as run takes it. People are never shared."),
    ],
    out: Annotated[Path, Option(help="Folder for the base; of an interrupted call: it goes on.")],
    members: Annotated[
        int, Option(help="Networks; each leaves out a fifth of the people, on whom it is measured.")
    ] = 10,
    epochs: Annotated[int | None, Option(help="Of every network; default: about 5,000 steps.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    seed: Annotated[int, Option(help="Seed of everything random.")] = 0,
    window: Annotated[float | None, Option(help="Seconds of a window; default: the shortest of all.")] = None,
    sfreq: Annotated[float | None, Option(help="Common rate in Hz; default: that of most data sets.")] = None,
    method: Annotated[str | None, Option(help="Penalty, as of a Setting; default: none.")] = None,
    mode: Annotated[str | None, Option(help="marginal, conditional or complementary.")] = None,
    strength: Annotated[float | None, Option(help="Of the penalty.")] = None,
    nuisance: Annotated[str | None, Option(help="What the penalty removes: subject, study, or subject+study.")] = None,
    cluster: OnCluster = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    log: Log = None,
) -> None:
    """Train networks on several data sets at once, with a head for each; a run may start from them."""
    from ..pretraining.pretrain import pretrain as make
    from ..pretraining.studies import Studies
    from .conducting import stoppable, workers

    studies = Studies(data, sfreq=sfreq, window=window)
    say(repr(studies))
    penalty = {"method": method, "mode": mode, "strength": strength, "nuisance": nuisance}
    with workers(cluster) as executor, stoppable(out, "the same command"):
        base = make(
            studies, out, members=members, epochs=epochs, device=device, seed=seed, executor=executor,
            progress=False if quiet else None, **penalty,
        )  # fmt: skip
    for study in base.card.studies:
        score = "not measured" if study["score"] is None else f"{study['score']:.3f} (chance {study['chance']:.3f})"
        say(f"{study['name']}: {study['people']} people, balanced accuracy on people left out {score}")
    say(f"base: {out} ({base.card.members} networks, {base.card.people} people)")
    say(f"start from it with: autotransfer run DATA --out RUN --base {out}")
