"""Stage one by Optuna's TPE: settings sampled from continuous spaces, a population at a time.

Trials are asked for and told in batches; the batch that is being trained is stored in the ledger, so that a killed
search continues with the same settings. Hopeless members are pruned: after a quarter of the epochs the worse half of
a population leaves the stack.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..censoring import CENSORS, MODES
from ..errors import UserError
from ..runs.ledger import REMEDY
from ..runs.run import Run, Tell
from ..settings import Setting

if TYPE_CHECKING:
    import optuna

BATCH = 16
RUNG = 0.25  # share of the epochs after which the worse half of a batch is given up


def suggest(trial: optuna.Trial) -> Setting:
    """A setting from the space: method, mode, strength and the method's own options."""
    method = trial.suggest_categorical("method", tuple(CENSORS))
    mode = trial.suggest_categorical("mode", tuple(MODES))
    strength = trial.suggest_float(f"strength {method}", *CENSORS[method].sampled, log=True)
    return Setting(method=method, mode=mode, strength=strength, **asdict(CENSORS[method].suggest(trial)))


@dataclass(frozen=True)
class Asked:
    """A setting that Optuna proposed, and the number of its trial."""

    trial: int
    setting: Setting


def tpe_search(run: Run, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Search, and return the settings that were trained to the end, the baseline first."""
    study = _study(run)
    options, fold = run.options, run.scored_split()
    baseline = options.apply(Setting())
    run.add([run.entry("search", baseline, *fold, options.seed)])
    batches = run.ledger.recall("tpe_batches", list[list[Asked]]) or []
    settings = [baseline]
    number = 0
    while sum(map(len, batches[:number])) < options.trials:
        if number == len(batches):
            size = min(BATCH, options.trials - sum(map(len, batches)))
            batches.append(_ask(study, run, number, size))
            run.ledger.remember(tpe_batches=batches)
        tell(f"stage one: batch {number + 1} of the tpe search, {len(batches[number])} settings")
        settings += _train_batch(run, study, batches[number], fold, shown=shown)
        number += 1
    return settings


def _study(run: Run) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{run.folder / 'optuna.sqlite'}"
    name = f"autotransfer {run.recordings.name} {(run.ledger.recall('fingerprint', str) or '')[:8]} {run.folder.name}"
    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    known = {asked.trial for batch in run.ledger.recall("tpe_batches", list[list[Asked]]) or [] for asked in batch}
    if not known <= {trial.number for trial in study.get_trials(deepcopy=False)}:
        raise UserError(f"{run.folder} notes trials that its search's database has not; {REMEDY}")
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if trial.number not in known:  # from a process that was killed before it could note them
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _ask(study: optuna.Study, run: Run, number: int, size: int) -> list[Asked]:
    """A batch of settings, a function of the seed, the batch's number and the trials told so far."""
    import optuna

    study.sampler = optuna.samplers.TPESampler(
        seed=run.options.seed * 10_007 + number, constant_liar=True, multivariate=True
    )
    trials = [study.ask() for _ in range(size)]
    return [Asked(trial.number, run.options.apply(suggest(trial))) for trial in trials]


def _train_batch(
    run: Run, study: optuna.Study, batch: list[Asked], fold: tuple[int, int], *, shown: bool | None
) -> list[Setting]:
    """Train a batch, pruning half of it, and tell Optuna the validation scores. Returns the unpruned settings."""
    import optuna

    seed = run.options.seed
    run.add(run.entry("search", asked.setting, *fold, seed) for asked in batch)
    run.work(prune_at=max(1, round(RUNG * run.options.max_epochs)), shown=shown)
    known = {entry.key: entry.record for entry in run.ledger.entries()}
    kept = []
    for asked in batch:
        record = known[run.entry("search", asked.setting, *fold, seed).key]
        assert record is not None
        if not record.pruned:
            kept.append(asked.setting)
        if study.trials[asked.trial].state == optuna.trial.TrialState.RUNNING:
            study.tell(asked.trial, 0.0 if record.failure else record.validation_score)
    return kept
