"""AutoTransfer from the first job to the choice: a plan performed stage by stage, each ending in an interim result.

Time decides how far a run gets, and nothing else. A stage is begun if there is time for it. At the deadline it is
stopped, and then it is not delivered: the result of the stage before it is the result of the run.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pandas as pd

from .. import schema
from ..csv_tables import csv_text
from ..files import write_atomically
from ..machine import FEW, cores, threads
from ..runs.choice import Choice, Ensemble, NamedSetting, Scores, Selection, StageScore
from ..runs.database import FINISHED, Entry
from ..runs.executor import LocalExecutor, TimeLimitReached
from ..runs.preparation import check_packages
from ..runs.progress import OUT_OF_TIME
from ..runs.results import finished_fits, results_table
from ..runs.run import Run, Tell
from ..settings import Setting
from ..training.progress import show_work
from ..words import clock
from .average import find_online_weights
from .baselines import baseline_scores
from .candidates import find_candidates, shortlist_key
from .diagnosis import diagnose
from .evaluation import Predictions, delivered_predictions, evaluate
from .evidence import ClassificationEvidence, Evidence
from .held_out import finished_entries, held_out_scores, validation_scores
from .models import build_models
from .plan import Plan, write_plan
from .planning import make_plan, with_candidate_stages
from .ranking import shortlist
from .regression_evidence import RegressionEvidence
from .replay import replay_subjects
from .selection import select
from .stopping import expects_gain, stages_without

RESERVED = 0.1  # share of the time limit for the last result

ResultCallback = Callable[[Run, Choice], None]


def perform_plan(run: Run, tell: Tell, *, shown: bool | None = None, on_result: ResultCallback | None = None) -> Choice:
    """Perform the rest of the plan. Leaves results.csv, choice.json, plan.json and model/ in the run's folder after
    each stage. on_result: called when all of these are written."""
    check_packages(run.options)
    with threads(cores()):
        plan = run.database.recall("plan", Plan)
        plan = make_plan(run.prepared) if plan is None else plan
        if plan.searched:
            shortlist = search_stage(run, tell, shown=shown)
            if not plan.stages:
                plan = with_candidate_stages(plan, shortlist)
        return PlanRunner(run, plan, tell, shown=shown, on_result=on_result).perform()


def search_stage(run: Run, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Train every setting on one fixed split. Returns the shortlist of networks, the paper's network first."""
    options, split = run.options, run.search_fold()
    by_network = options.has_stages  # networks of several kinds, each with the grid
    if options.search == "tpe":
        from .tpe import tpe_search

        settings = tpe_search(run, tell, shown=shown)
    else:
        settings = find_candidates(run.prepared).networks
        run.database.add(Entry.build("search", setting, *split, options.seed) for setting in settings)
        tell(f"stage one: {len(settings)} setting{'s' * (len(settings) != 1)} on one split")
        run.train(shown=shown)
    first = [entry for entry in finished_entries(run, settings, [split]) if entry.seed == options.seed]
    if options.rule == "average":
        scores = held_out_scores(run, first, validation_only=True)
    else:
        scores = validation_scores(first, run.groups, swapped=False)
    by_key = {setting.key: setting for setting in settings}
    # A shortlist for every network: the best one must not crowd out the settings of another.
    kept = []
    for network in dict.fromkeys(shortlist_key(setting, by_network=by_network) for setting in settings):
        kept += shortlist(
            scores, {k: s.method for k, s in by_key.items() if shortlist_key(s, by_network=by_network) == network}
        )
    return [by_key[key] for key in kept]


class PlanRunner:
    """Performer of a plan. The run database keeps every interim result, and how much time was spent."""

    def __init__(
        self, run: Run, plan: Plan, tell: Tell, *, shown: bool | None, on_result: ResultCallback | None
    ) -> None:
        self.run, self.plan, self.tell, self.shown = run, plan, tell, shown
        self.on_result = on_result
        self.start = time.monotonic() - (run.database.recall("seconds_spent", float) or 0.0)
        limit = None if plan.fixed else run.options.seconds
        self.allowed = run.database.recall("seconds_allowed", float) or limit or math.inf  # seconds
        self.stops = run.options.has_stages and math.isfinite(self.allowed)  # before the limit, if no gain is expected
        self.delivered = run.database.recall("delivered_stages", int) or 0  # stages
        self.answers = run.database.recall("stage_scores", list[StageScore]) or []
        self.nested = (
            run.database.recall("nested_weights", list[dict[str, dict[str, float]]]) or []
        )  # weights after each stage
        self.answering = 0.0  # seconds that the slowest interim result took
        self.chosen: tuple[Choice, Predictions] | None = None  # after the last completed stage
        run.database.remember(plan=plan)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the last result must be begun."""
        kept = RESERVED * self.allowed if math.isfinite(self.allowed) else 0.0
        return self.allowed - self.spent - max(kept, self.answering)

    def perform(self) -> Choice:
        staged, stages = self.run.options.has_stages, self.plan.stages
        for number in range(len(stages)):
            if number < self.delivered:
                self.run.database.add(self._entries(number))  # jobs are numbered in the order in which they are added
                continue
            if not self._train(number):
                break
            self.delivered = number + 1
            if staged:
                choice = self._answer()
                if choice.end_reason is not None:
                    return choice
        if not staged:
            return self._answer()
        return self._answer(since=self.answers[-1].seconds)  # the last one, as no stage follows

    def _entries(self, number: int) -> list[Entry]:
        stage = self.plan.stages[number]
        return [
            Entry.build(name, training.setting, *fold, training.seed)
            for name, every in (("folds", stage.fits), ("sessions", stage.online))
            for training in every
            for fold in self.run.folds()
        ]

    def _train(self, number: int) -> bool:
        """Train a stage on all folds. Return whether it was completed."""
        run, stage, entries = self.run, self.plan.stages[number], self._entries(number)
        if not self._has_time(number):
            self._set_aside(number)
            return False
        always = number == 0 or stage.always
        run.database.add(entries)
        until = math.inf if always else time.monotonic() + self.seconds_left
        run.database.remember(limit=[until - time.monotonic(), time.time()] if math.isfinite(until) else [])
        self.tell(f"stage {number + 1} of {len(self.plan.stages)}: {stage.name} on {len(run.folds())} folds")
        if isinstance(run.executor, LocalExecutor):
            run.executor.until = until
        began = time.monotonic()
        try:
            run.train(shown=self.shown, label=stage.name, counted=entries)
        except TimeLimitReached:
            self._set_aside(number)
            spent, whole = clock(time.monotonic() - began), clock(self.spent)
            self.tell(f"{stage.name} takes too long and is not delivered: {spent} of {whole} were spent on it")
            return False
        finally:
            run.database.remember(seconds_spent=self.spent)
        return True

    def _has_time(self, number: int) -> bool:
        """Return whether a stage may begin: if time is left, and as much as its fits take if they take as long as
        finished ones of the same kind. Kinds without finished fits, and stages that were begun before, need 0 s."""
        statuses, entries = self.run.database.statuses(), self._entries(number)
        of_stage = {statuses.get(entry.key) for entry in entries}
        if number == 0 or self.plan.stages[number].always or of_stage <= {*FINISHED}:
            return True
        seconds: dict[str, list[float]] = {}
        if not of_stage & {"running", *FINISHED}:
            for entry in self.run.database.entries():
                if entry.record is not None:
                    seconds.setdefault(entry.setting.family, []).append(entry.record.seconds)
        return self.seconds_left > sum(fmean(seconds.get(entry.setting.family, [0.0])) for entry in entries)

    def _set_aside(self, number: int) -> None:
        """Hide the fits of a stage that was not completed. They stay in the run database for `resume`."""
        delivered = {entry.key for n in range(self.delivered) for entry in self._entries(n)}
        keys = [entry.key for entry in self._entries(number) if entry.key not in delivered]
        self.run.database.set_aside(keys)

    def _scores_baselines(self, *, last: bool) -> bool:
        """Whether baselines that need fits of their own are scored: they wait for the first network or, in a run
        without networks, for the last result."""
        trains = [any(not setting.network.closed_form for setting in stage.settings) for stage in self.plan.stages]
        return any(trains[: self.delivered]) or (last and not any(trains))

    def _answer(self, since: float | None = None) -> Choice:
        """Return the result of everything that is delivered. since: seconds of an interim result, which is made again
        as the last one."""
        began = time.monotonic()
        with threads(min(FEW, cores())):
            choice = self._decided(since)
        self.answering = max(self.answering, time.monotonic() - began)
        return choice

    def _decided(self, since: float | None) -> Choice:
        run, staged = self.run, self.run.options.has_stages
        digest = run.check_data()  # files that are larger than memory may have been written to
        candidates = list(dict.fromkeys(s for stage in self.plan.stages[: self.delivered] for s in stage.settings))
        with show_work("weights and estimates", shown=self.shown):
            if since is None or self.chosen is None:
                self.chosen = self._chosen(since, candidates)
            choice, predictions = self.chosen
        ended = self._ended(since) if staged else None
        write_results(run)
        last, online = ended is not None or not staged, None
        with show_work("scoring baselines", shown=self.shown):
            scored, skipped = baseline_scores(run, every=self._scores_baselines(last=last))
        baselines = {name: run.by_person(scores) for name, scores in scored.items()}
        choice = replace(choice, baselines=baselines, skipped_baselines=skipped, fingerprint=digest)
        if choice.ensemble is not None and last and not run.options.task.is_numeric:
            centered = [training.setting for stage in self.plan.stages[: self.delivered] for training in stage.online]
            with show_work("weights for online sessions", shown=self.shown):
                online = find_online_weights(run, candidates, list(dict.fromkeys(centered)))
            with show_work("replaying held-out subjects", shown=self.shown):
                choice = replace(choice, replay=replay_subjects(run, choice, predictions, online))
        if ended == OUT_OF_TIME or not staged:
            choice = replace(choice, undelivered_stages=[stage.name for stage in self.plan.stages[self.delivered :]])
        if staged:
            choice = replace(choice, stages=self.answers, end_reason=ended)
        with show_work("building models", shown=self.shown):
            build_models(run, choice, None if online is None else online.weights)
        if staged and since is None:  # predict can use it from now on
            self.answers[-1] = replace(self.answers[-1], seconds=self.spent)
            choice = replace(choice, stages=self.answers)
        write_atomically(run.folder / "choice.json", json.dumps(schema.to_values(choice), indent=1))
        write_plan(run.folder, self.plan.as_performed(self.delivered))
        facts: dict[str, Any] = {"complete": True, "end_reason": ended or ""} if last else {}
        facts |= {"stage_scores": self.answers, "nested_weights": self.nested, "delivered_stages": self.delivered}
        run.database.remember(seconds_spent=self.spent, choice=choice, **facts)
        if self.on_result is not None:
            self.on_result(run, choice)
        if staged and not last:
            stage = self.answers[-1]
            whom = "people" if run.data.units is None else f"each {run.options.hold_out}"
            self.tell(f"answer after {clock(stage.seconds)}: {stage.score:.3f} on {whom} left out; predict can use it")
        return choice

    def _ended(self, since: float | None) -> str | None:
        """Return why no other stage follows; None if one may. If time is over, an interim result comes first."""
        if self.delivered == len(self.plan.stages):
            return "everything in its plan was trained"
        if since is not None:
            return OUT_OF_TIME
        if self.stops and not expects_gain([answer.scores for answer in self.answers]):
            return "no more gain was expected"
        return None

    def _chosen(self, since: float | None, candidates: Sequence[Setting]) -> tuple[Choice, Predictions]:
        """Select from the candidates, then evaluate and diagnose what was selected. Return its predictions, too."""
        run, name_of = self.run, self.run.options.name_of
        named = [NamedSetting(name_of(setting), setting) for setting in candidates]
        paper = next((one for one in named if one.setting == run.options.reference), None)
        entries = finished_entries(run, candidates, run.folds())
        evidence: Evidence
        if run.options.task.is_numeric:
            evidence = RegressionEvidence.from_run(run, named)
            run.database.remember(candidate_scores=evidence.candidate_scores)
        else:
            evidence = ClassificationEvidence.from_run(run, named, entries)
        selection = select(evidence, run.options.task.rule or run.options.rule, paper)
        if run.options.has_stages and selection.ensemble is not None:
            scores = evidence.score(run.options.scoring, delivered_predictions(selection, evidence))
            number, seconds = self.delivered - 1, self.spent if since is None else since
            name, by_person = self.plan.stages[number].name, run.by_person(scores)
            self.answers = [*self.answers[:number], StageScore.from_scores(name, number, seconds, scores, by_person)]
            self.nested = [*self.nested[:number], selection.ensemble.nested]
            if self.stops:
                selection = self._as_stopped(selection, selection.ensemble)
        evaluation = evaluate(run, selection, evidence, entries)
        facts = {name: getattr(run.options, name) for name in ("target", "at_least", "hold_out")}
        choice = Choice.combine(selection, evaluation, diagnose(run, selection, evidence), **facts)
        return choice, delivered_predictions(selection, evidence)

    def _as_stopped(self, selection: Selection, ensemble: Ensemble) -> Selection:
        """Give each person, without whom the run would have stopped earlier, the weights of that time."""
        subjects, nested = list(map(str, self.run.recordings.subjects)), dict(ensemble.nested)
        for group in self.run.groups:
            people = {subjects[person] for person in group} & set(nested)
            earlier = self.nested[stages_without(self.answers, people) - 1]
            nested |= {person: earlier[person] for person in people}
        return replace(selection, ensemble=replace(ensemble, nested=nested))


def results_of(run: Run) -> pd.DataFrame:
    """Return results.csv: a row for each finished job and test subject."""
    table = results_table(finished_fits(run.database.entries(), run.data.subjects, run.options.name_of, run.groups))
    if (
        scores := run.database.recall("candidate_scores", dict[str, Scores])
    ) is not None:  # which records of numbers have not
        pairs = zip(table["setting"], table["test_subject"].astype(str), strict=True)
        table["test_score"] = [scores.get(setting, {}).get(subject, math.nan) for setting, subject in pairs]
    return table


def write_results(run: Run) -> None:
    write_atomically(run.folder / "results.csv", csv_text(results_of(run)))
