"""Search for settings with Optuna's TPE sampler, one batch of trials at a time.

A batch depends only on the seed, the number of the batch and earlier scores, so that a search can be resumed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ..censoring import CENSORS, MODES
from ..runs.database import Entry
from ..runs.run import Run, Tell
from ..settings import Setting

if TYPE_CHECKING:
    import optuna

BATCH = 16  # trials that are trained together


def suggest(trial: optuna.Trial) -> Setting:
    """Sample a setting: method, mode, strength and the options of the method."""
    method = trial.suggest_categorical("method", tuple(CENSORS))
    mode = trial.suggest_categorical("mode", tuple(MODES))
    strength = trial.suggest_float(f"strength {method}", *CENSORS[method].sampled_strengths, log=True)
    return Setting(method=method, mode=mode, strength=strength, **asdict(CENSORS[method].suggest(trial)))


def tpe_search(run: Run, tell: Tell, *, progress: bool | None) -> list[Setting]:
    """Train the sampled settings on one fold and return them, after the network without a penalty."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    options, fold = run.options, run.search_fold()
    settings = [options.apply(Setting())]
    run.database.add([Entry.build("search", settings[0], *fold, options.seed)])
    for number, start in enumerate(range(0, options.trials, BATCH)):
        study.sampler = optuna.samplers.TPESampler(
            seed=options.seed * 10_007 + number, constant_liar=True, multivariate=True
        )
        trials = [study.ask() for _ in range(min(BATCH, options.trials - start))]
        batch = [options.apply(suggest(trial)) for trial in trials]
        tell(f"stage one: batch {number + 1} of the tpe search, {len(batch)} settings")
        keys = [Entry.build("search", setting, *fold, options.seed).key for setting in batch]
        run.database.add(Entry.build("search", setting, *fold, options.seed) for setting in batch)
        run.train(progress=progress)
        records = {entry.key: entry.record for entry in run.database.entries()}
        for trial, key in zip(trials, keys, strict=True):
            record = records[key]
            assert record is not None, "training finishes every job"
            study.tell(trial, 0.0 if record.failure else record.validation_score)
        settings += batch
    return settings
