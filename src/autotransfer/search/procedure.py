"""Perform the plan of a run stage by stage. Each stage ends with an interim result that can be used.

The time limit determines only the number of stages. A stage that is stopped at the time limit is not delivered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ..csv_tables import csv_text
from ..files import write_atomically
from ..machine import count_cores, limit_threads
from ..models.building import CandidateCache
from ..runs.choice import Choice, EnsembleWeights, NamedSetting, Scores, Selection, StageScore, write_choice
from ..runs.database import FINISHED, Entry
from ..runs.executor import LocalExecutor, TimeLimitReached
from ..runs.preparation import check_packages
from ..runs.progress import OUT_OF_TIME
from ..runs.results import finished_fits, results_table
from ..runs.run import PROBE_SECONDS, Run, Tell, check_same_data
from ..settings import Setting
from ..training.progress import show_work
from ..words import clock, count, score
from .baselines import baseline_scores
from .candidates import find_candidates, shortlist_key
from .diagnosis import diagnose
from .evaluation import Predictions, delivered_predictions, evaluate
from .evidence import ClassificationEvidence, Evidence, RegressionEvidence
from .held_out import find_entries, held_out_scores, shortlist, validation_scores
from .models import save_delivered_model
from .plan import Plan, add_candidate_stages, make_plan, write_plan
from .replay import replay_subjects
from .selection import OnlineWeights, find_online_weights, select

MARGIN = 1.5  # ratio of the time that is reserved for the last result to its estimate
MAX_TIMING_SHARE = 0.03  # largest share of a run's time in which steps of the last result are timed
RECENT_STAGES = 2  # number of stages whose gains predict the gain of the next stage
MIN_GAIN = 0.002  # gain of the score that is worth another stage
LEVEL = 0.9  # quantile at the upper end of the 80 % interval

Callback = Callable[[Run, Choice], None]


def perform_plan(run: Run, tell: Tell, *, progress: bool | None = None, on_result: Callback | None = None) -> Choice:
    """Perform the rest of the plan, and write results.csv, choice.json, plan.json and model/ after each stage.

    on_result: called after each result is written.
    """
    check_packages(run.options)
    with limit_threads(count_cores()):
        plan = run.database.load_fact("plan", Plan)
        plan = make_plan(run.prepared) if plan is None else plan
        if plan.n_searched:
            settings = search_settings(run, tell, progress=progress)
            if not plan.stages:
                plan = add_candidate_stages(plan, settings)
        return PlanRunner(run, plan, tell, progress=progress, on_result=on_result).perform()


def search_settings(run: Run, tell: Tell, *, progress: bool | None) -> list[Setting]:
    """Train every setting on one fold and return the best settings of each network, the paper's network first."""
    options, fold = run.options, run.search_fold()
    if options.search == "tpe":
        from .tpe import tpe_search

        settings = tpe_search(run, tell, progress=progress)
    else:
        settings = find_candidates(run.prepared).networks
        run.database.add(Entry.build("search", setting, *fold, options.seed) for setting in settings)
        tell(f"stage one: {count(len(settings), 'setting')} on one fold")
        run.train(progress=progress)
    entries = [entry for entry in find_entries(run, settings, [fold]) if entry.seed == options.seed]
    if options.rule == "average":
        scores = held_out_scores(run, entries, validation_only=True)
    else:
        scores = validation_scores(entries, run.groups, swapped=False)
    by_key = {setting.key: setting for setting in settings}
    shortlists: dict[object, dict[str, str | None]] = {}  # by key of a shortlist: methods by key of a setting
    for key, setting in by_key.items():
        shortlists.setdefault(shortlist_key(setting, by_network=options.has_stages), {})[key] = setting.method
    return [by_key[key] for methods in shortlists.values() for key in shortlist(scores, methods)]


class PlanRunner:
    """Runner of a plan. Its state is the delivered stages, their interim results and the time spent."""

    def __init__(self, run: Run, plan: Plan, tell: Tell, *, progress: bool | None, on_result: Callback | None) -> None:
        self.run, self.plan, self.tell, self.progress, self.on_result = run, plan, tell, progress, on_result
        load_fact = run.database.load_fact
        self.start = run.start_time - (load_fact("seconds_spent", float) or 0.0)
        limit = None if plan.is_repeated else run.options.seconds
        self.seconds_allowed = load_fact("seconds_allowed", float) or limit or math.inf
        self.may_stop_early = run.options.has_stages and math.isfinite(self.seconds_allowed)  # if no gain is expected
        self.n_delivered = load_fact("delivered_stages", int) or 0
        self.stage_scores = load_fact("stage_scores", list[StageScore]) or []
        self.nested_weights = load_fact("nested_weights", list[dict[str, dict[str, float]]]) or []  # after each stage
        self.interim_seconds = 0.0  # seconds that the latest interim result took
        self.result_seconds = load_fact("result_seconds", float) or 0.0  # estimate for the last result
        self.last_result_ratio = 1.0  # ratio of the estimate to the seconds of an interim result
        self.timing_seconds = 0.0
        self.linear_candidates: CandidateCache = {}  # of delivered models
        self.selected: tuple[Choice, Predictions] | None = None  # result of `_select` after the last completed stage
        run.database.store_facts(plan=plan)

    @property
    def seconds_spent(self) -> float:
        return time.monotonic() - self.start

    def seconds_left(self, number: int) -> float:
        """Return the seconds that remain for training until the last result, with this stage, must be computed."""
        n_before, n_after = (len(self._list_candidates(n)) for n in (self.n_delivered, number + 1))
        growth = math.sqrt(n_after / max(n_before, 1))  # part of the time does not depend on the number of candidates
        reserved = MARGIN * growth * self.result_seconds
        if not all(setting.network.is_closed_form for setting in self._list_candidates(number + 1)):
            reserved += PROBE_SECONDS  # the last report measures the leakage of networks
        return self.seconds_allowed - self.seconds_spent - reserved

    def _list_candidates(self, n_stages: int) -> list[Setting]:
        return list(dict.fromkeys(setting for stage in self.plan.stages[:n_stages] for setting in stage.settings))

    def perform(self) -> Choice:
        for number in range(len(self.plan.stages)):
            if number < self.n_delivered:
                self.run.database.add(self._list_entries(number))  # `add` numbers jobs in the order of addition
                continue
            if not self._train(number):
                break
            self.n_delivered = number + 1
            if self.run.options.has_stages:
                choice = self._deliver()
                if choice.end_reason is not None:
                    return choice
        return self._deliver(is_last=True)

    def _list_entries(self, number: int) -> list[Entry]:
        """Return the jobs of a stage."""
        stage = self.plan.stages[number]
        return [
            Entry.build(name, fit.setting, *fold, fit.seed)
            for name, fits in (("folds", stage.fits), ("sessions", stage.online_fits))
            for fit in fits
            for fold in self.run.folds()
        ]

    def _train(self, number: int) -> bool:
        """Train a stage on all folds, and return whether the stage was completed."""
        run, stage, entries = self.run, self.plan.stages[number], self._list_entries(number)
        if not self._has_time(number):
            self._hide_fits(number)
            return False
        run.database.add(entries)
        seconds = math.inf if number == 0 or stage.ignores_time_limit else self.seconds_left(number)
        run.database.store_facts(limit=[seconds, time.time()] if math.isfinite(seconds) else [])
        self.tell(f"stage {number + 1} of {len(self.plan.stages)}, {stage.describe(len(run.folds()))}")
        start = time.monotonic()
        if isinstance(run.executor, LocalExecutor):
            run.executor.until = start + seconds
        try:
            run.train(progress=self.progress, label=stage.name, counted=entries)
        except TimeLimitReached:
            self._hide_fits(number)
            spent = clock(time.monotonic() - start)
            self.tell(f"{stage.name}: stopped at the time limit after {spent}, and not part of the result")
            return False
        finally:
            run.database.store_facts(seconds_spent=self.seconds_spent)
        return True

    def _has_time(self, number: int, seconds_before: float = 0.0) -> bool:
        """Return whether the time left suffices for a stage, estimated from finished fits of the same families.

        seconds_before: seconds until the stage can start.
        """
        # Families without finished fits, and stages that have started before, are assumed to take no time.
        statuses, entries = self.run.database.statuses(), self._list_entries(number)
        stage_statuses = {statuses.get(entry.key) for entry in entries}
        if number == 0 or self.plan.stages[number].ignores_time_limit or stage_statuses <= {*FINISHED}:
            return True
        seconds: dict[str, list[float]] = {}
        if not stage_statuses & {"running", *FINISHED}:
            for entry in self.run.database.entries():
                if entry.record is not None:
                    seconds.setdefault(entry.setting.family, []).append(entry.record.seconds)
        fit_seconds = sum(fmean(seconds.get(entry.setting.family, [0.0])) for entry in entries)
        return self.seconds_left(number) > seconds_before + fit_seconds

    def _hide_fits(self, number: int) -> None:
        """Hide the fits of a stage that was not completed. The run database keeps these fits for `resume`."""
        delivered = {entry.key for n in range(self.n_delivered) for entry in self._list_entries(n)}
        keys = [entry.key for entry in self._list_entries(number) if entry.key not in delivered]
        self.run.database.hide(keys)

    def _should_fit_baselines(self, *, is_last: bool) -> bool:
        """Return whether baselines are fitted: after the first stage with networks or, without networks, at the end."""
        has_network = [any(not s.network.is_closed_form for s in stage.settings) for stage in self.plan.stages]
        return any(has_network[: self.n_delivered]) or (is_last and not any(has_network))

    def _deliver(self, *, is_last: bool = False) -> Choice:
        """Compute, write and return the result of all delivered stages. is_last: whether no stage follows."""
        start = time.monotonic()
        with limit_threads(1):  # matrices are small, and threads would wait for each other and for other programs
            choice, online = self._make_choice(is_last=is_last)
        with show_work("building models", progress=self.progress):
            save_delivered_model(self.run, choice, self.linear_candidates, None if online is None else online.weights)
        if self.run.options.has_stages and not is_last:  # predict can use the model from now on
            self.stage_scores[-1] = replace(self.stage_scores[-1], seconds=self.seconds_spent)
            choice = replace(choice, stages=self.stage_scores)
        self._write(choice, is_last=is_last)
        self.interim_seconds = time.monotonic() - start
        if self.may_stop_early and not is_last and choice.end_reason is None:
            self._estimate_last_result()
        return choice

    def _estimate_last_result(self) -> None:
        """Estimate the seconds of the last result from the seconds of an interim result, which has fewer steps.

        The additional steps are timed on the subjects of one group, which are held out together. They are not timed
        again if timing has already taken too long.
        """
        if self.timing_seconds <= MAX_TIMING_SHARE * self.seconds_spent and self.selected is not None:
            start = time.monotonic()
            choice, predictions = self.selected
            groups = [held_out for group in self.run.groups if (held_out := [s for s in group if s in predictions])]
            n_windows = [sum(len(predictions[subject]) for subject in group) for group in groups]
            group = groups[min(range(len(groups)), key=lambda k: abs(n_windows[k] - fmean(n_windows)))]
            with limit_threads(1), show_work("timing the last result", progress=self.progress):
                online = self._find_online_weights(group)
                fit_end = time.monotonic()
                replay_subjects(self.run, choice, {subject: predictions[subject] for subject in group}, online)
            end = time.monotonic()
            # Weights are fitted on all subjects and without each subject.
            n_fits, n_timed_fits = len(predictions) + 1, len(group) + 1
            other_seconds = (fit_end - start) * n_fits / n_timed_fits + (end - fit_end) * len(groups)
            self.last_result_ratio = 1 + other_seconds / self.interim_seconds
            self.timing_seconds += end - start
        self.result_seconds = self.interim_seconds * self.last_result_ratio
        self.run.database.store_facts(result_seconds=self.result_seconds)

    def _find_online_weights(self, subjects: Collection[int]) -> OnlineWeights | None:
        stages = self.plan.stages[: self.n_delivered]
        centered = list(dict.fromkeys(fit.setting for stage in stages for fit in stage.online_fits))
        return find_online_weights(self.run, self._list_candidates(self.n_delivered), centered, subjects)

    def _make_choice(self, *, is_last: bool) -> tuple[Choice, OnlineWeights | None]:
        """Return the evaluated selection and, for the last result, the weights of the online ensemble."""
        run, has_stages = self.run, self.run.options.has_stages
        check_same_data(run.database, run.options, run.recordings)  # a memory-mapped file may have changed
        with show_work("computing weights and scores", progress=self.progress):
            if not is_last or self.selected is None:
                self.selected = self._select(self._list_candidates(self.n_delivered), is_last=is_last)
            choice, predictions = self.selected
        end_reason = self._find_end_reason(is_last=is_last) if has_stages else None
        is_last |= end_reason is not None
        write_results(run)
        with show_work("scoring baselines", progress=self.progress):
            scores, skipped = baseline_scores(run, fit_missing=self._should_fit_baselines(is_last=is_last))
        baselines = {name: run.average_units(by_unit) for name, by_unit in scores.items()}
        fingerprint = run.database.require_fact("fingerprint", str)
        choice = replace(choice, baselines=baselines, skipped_baselines=skipped, fingerprint=fingerprint)
        online = None
        if choice.ensemble is not None and is_last and not run.options.task.is_numeric:
            with show_work("computing weights for online sessions", progress=self.progress):
                online = self._find_online_weights(predictions)
            with show_work("replaying windows of held-out subjects", progress=self.progress):
                choice = replace(choice, replay=replay_subjects(run, choice, predictions, online))
        if end_reason == OUT_OF_TIME or not has_stages:
            choice = replace(choice, undelivered_stages=[stage.name for stage in self.plan.stages[self.n_delivered :]])
        if has_stages:
            choice = replace(choice, stages=self.stage_scores, end_reason=end_reason)
        return choice, online

    def _write(self, choice: Choice, *, is_last: bool) -> None:
        """Write choice.json, the plan and the state of the run; then call `on_result`."""
        run, is_last = self.run, is_last or choice.end_reason is not None
        write_choice(run.folder, choice)
        write_plan(run.folder, self.plan.as_performed(self.n_delivered))
        facts: dict[str, Any] = {"complete": True, "end_reason": choice.end_reason or ""} if is_last else {}
        facts |= {"stage_scores": self.stage_scores, "nested_weights": self.nested_weights}
        facts |= {"delivered_stages": self.n_delivered, "seconds_spent": self.seconds_spent}
        run.database.store_facts(choice=choice, **facts)
        if self.on_result is not None:
            self.on_result(run, choice)
        if not is_last:
            stage = self.stage_scores[-1]
            held_out = "subjects" if run.data.units is None else f"{run.options.hold_out}s"
            result = f"score {score(stage.score)} on held-out {held_out}"
            self.tell(f"interim result after {clock(stage.seconds)}: {result}; autotransfer predict can use this model")

    def _find_end_reason(self, *, is_last: bool) -> str | None:
        """Return why no other stage follows; None if a stage may follow."""
        if self.n_delivered == len(self.plan.stages):
            return "everything in its plan was trained"
        if is_last:
            return OUT_OF_TIME
        is_early = self.n_delivered < self.plan.n_stages_with_new_encoders
        if self.may_stop_early and not is_early and not expects_gain([stage.scores for stage in self.stage_scores]):
            return "no more gain was expected"
        return None if self._has_time(self.n_delivered, self.interim_seconds) else OUT_OF_TIME

    def _select(self, settings: Sequence[Setting], *, is_last: bool) -> tuple[Choice, Predictions]:
        """Select a model from settings and evaluate it. Return the choice and predictions for held-out subjects."""
        run, name_of = self.run, self.run.options.name_of
        candidates = [NamedSetting(name_of(setting), setting) for setting in settings]
        paper_network = next((c for c in candidates if c.setting == run.options.reference), None)
        entries = find_entries(run, settings, run.folds())
        evidence: Evidence
        if run.options.task.is_numeric:
            evidence = RegressionEvidence.from_run(run, candidates)
            run.database.store_facts(candidate_scores=evidence.candidate_scores)
        else:
            evidence = ClassificationEvidence.from_run(run, candidates, entries)
        selection = select(evidence, paper_network)
        if run.options.has_stages and selection.ensemble is not None:
            scores = evidence.score(run.options.scoring, delivered_predictions(selection, evidence))
            number, by_subject = self.n_delivered - 1, run.average_units(scores)
            seconds = self.stage_scores[-1].seconds if is_last else self.seconds_spent
            name, limits = self.plan.stages[number].name, run.options.scoring.limits
            stage_score = StageScore.from_scores(name, number, seconds, scores, by_subject, limits)
            self.stage_scores = [*self.stage_scores[:number], stage_score]
            self.nested_weights = [*self.nested_weights[:number], selection.ensemble.nested]
            if self.may_stop_early:
                selection = self._use_earlier_weights(selection, selection.ensemble)
        evaluation = evaluate(run, selection, evidence, entries)
        facts = {name: getattr(run.options, name) for name in ("target", "at_least", "hold_out")}
        choice = Choice.combine(selection, evaluation, diagnose(run, selection, evidence), **facts)
        return choice, delivered_predictions(selection, evidence)

    def _use_earlier_weights(self, selection: Selection, ensemble: EnsembleWeights) -> Selection:
        """Replace nested weights of each subject by the weights after the last stage of a run without the subject."""
        names, nested = list(map(str, self.run.recordings.subjects)), dict(ensemble.nested)
        for group in self.run.groups:
            subjects = {names[subject] for subject in group} & set(nested)
            n_stages = count_stages_without(self.stage_scores, subjects, self.plan.n_stages_with_new_encoders)
            earlier = self.nested_weights[n_stages - 1]
            nested |= {subject: earlier[subject] for subject in subjects}
        return replace(selection, ensemble=replace(ensemble, nested=nested))


def expects_gain(scores: Sequence[Scores], without: Collection[str] = ()) -> bool:
    """Return whether the 80 % interval of the mean gain reaches MIN_GAIN. scores: by subject after each stage."""
    if len(scores) <= RECENT_STAGES:
        return True
    subjects = [name for name in scores[-1] if name not in without]
    gains = np.array([(scores[-1][name] - scores[-1 - RECENT_STAGES][name]) / RECENT_STAGES for name in subjects])
    gains = gains[np.isfinite(gains)]
    if len(gains) < 2:
        return True
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return bool(gains.mean() + stdtrit(len(gains) - 1, LEVEL) * error >= MIN_GAIN)


def count_stages_without(stage_scores: Sequence[StageScore], subjects: Collection[str], n_required: int = 1) -> int:
    """Return the number of stages, n_required or more, after which a run without these subjects would have stopped."""
    scores = [stage.scores for stage in stage_scores]
    numbers = range(max(n_required, 1), len(scores))
    return next((n for n in numbers if not expects_gain(scores[:n], subjects)), len(scores))


def read_results(run: Run) -> pd.DataFrame:
    """Return the table of results.csv, with a row for each finished job and test subject."""
    table = results_table(finished_fits(run.database.entries(), run.data.subjects, run.options.name_of, run.groups))
    scores = run.database.load_fact("candidate_scores", dict[str, Scores])
    if scores is not None:  # records of regressions have no scores
        pairs = zip(table["setting"], table["test_subject"].astype(str), strict=True)
        table["test_score"] = [scores.get(setting, {}).get(subject, math.nan) for setting, subject in pairs]
    return table


def write_results(run: Run) -> None:
    write_atomically(run.folder / "results.csv", csv_text(read_results(run)))
