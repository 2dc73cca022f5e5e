"""AutoTransfer from the first job to the choice: a plan performed stage by stage, each ending in an answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .. import schema
from ..files import write_atomically
from ..machine import FEW, cores, threads
from ..runs.choice import Choice, Playback, StageScore
from ..runs.csv_tables import csv_of
from ..runs.ending import NO_ROOM, OVER, out_of_time
from ..runs.executor import LocalExecutor, OutOfTime
from ..runs.ledger import FINISHED
from ..runs.preparation import check_packages
from ..runs.results import results_table, trained
from ..runs.run import Run, Tell
from ..settings import Setting
from ..training.progress import working
from ..words import clock
from .average import Nested, OnlineWeights, Weights, find_nested, find_online
from .decision import decide
from .held_out import HeldOutLogProbs, trained_candidates
from .kinds import candidates_of, list_of
from .models import build_models
from .peers import peer_scores
from .plan import GIVEN_UP, LATE, Plan, Stage, write_plan
from .plan_words import left_out_words, span
from .planning import answer_seconds, plan_of, with_candidate_stages
from .playback import PEOPLE, play_back
from .stages import shortlist
from .stopping import expects_gain, stopped_at
from .validation import finished_entries, measured_scores, validation_scores

EARLY = 20.0  # seconds that peers, and people who play their windows, may take together before the first answer
GROWING = 1.5  # an answer from more candidates takes longer than those before it, hardly by more than this


Answered = Callable[[Run, Choice], None]


def conduct(
    run: Run, tell: Tell, *, shown: bool | None = None, played: int = PEOPLE, answered: Answered | None = None
) -> Choice:
    """Perform the rest of the plan. Leaves results.csv, choice.json, plan.json and model/ in the run's folder after
    each stage. played: how many people at most are played back. answered: called when all of these are written."""
    check_packages(run.options)
    with threads(cores()):
        plan = run.ledger.recall("plan", Plan)
        plan = plan_of(run.prepared) if plan is None else plan
        if plan.searched:
            shortlist = search_stage(run, tell, shown=shown)
            if not plan.stages:
                plan = with_candidate_stages(plan, [*shortlist, *candidates_of(run.prepared).solved])
        return Conductor(run, plan, tell, shown=shown, played=played, answered=answered).perform()


def search_stage(run: Run, tell: Tell, *, shown: bool | None) -> list[Setting]:
    """Train every setting on one fixed split. Returns the shortlist of networks, the baseline first."""
    options, split = run.options, run.scored_split()
    apart = options.adaptation is not None  # networks of several kinds, each with the grid
    if options.search == "tpe":
        from .tpe import tpe_search

        settings = tpe_search(run, tell, shown=shown)
    else:
        settings = candidates_of(run.prepared).networks
        run.add(run.entry("search", setting, *split, options.seed) for setting in settings)
        tell(f"stage one: {len(settings)} setting{'s' * (len(settings) != 1)} on one split")
        run.work(shown=shown)
    first = [entry for entry in finished_entries(run, settings, [split]) if entry.seed == options.seed]
    if options.rule == "average":
        scores = measured_scores(run, first, both=False)
    else:
        scores = validation_scores(first, run.groups, twins=False)
    by_key = {setting.key: setting for setting in settings}
    # A shortlist for every network: the best one must not crowd out the settings of another.
    kept = []
    for network in dict.fromkeys(list_of(setting, apart=apart) for setting in settings):
        kept += shortlist(scores, {k: s.method for k, s in by_key.items() if list_of(s, apart=apart) == network})
    return [by_key[key] for key in kept]


class Conductor:
    """A plan as it is performed. The ledger keeps what was left out of it, and every answer."""

    def __init__(
        self, run: Run, plan: Plan, tell: Tell, *, shown: bool | None, played: int, answered: Answered | None
    ) -> None:
        self.run, self.plan, self.tell, self.shown = run, plan, tell, shown
        self.played, self.answered = played, answered
        self.start = time.monotonic() - (run.ledger.recall("spent", float) or 0.0)
        self.answers = run.ledger.recall("answers", list[StageScore]) or []
        self.nested: dict[int, Nested] = {}  # by how many answers there were
        self.trained = self.foreseen = 0.0  # seconds of training stages of networks: measured, and planned
        self.answering = 0.0  # seconds of the slowest answer, without `extras`
        self.extras = 0.0  # seconds of peers and playback in an answer, which take as long as there is time
        run.ledger.remember(plan=plan)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        """Seconds to the limit."""
        limit = None if self.plan.fixed else self.plan.limit
        return math.inf if limit is None else limit - self.spent

    @property
    def left_to_train(self) -> float:
        """Seconds until the last answer must be begun."""
        return self.left - GROWING * self.answering - min(LATE, self.extras)

    def perform(self) -> Choice:
        staged, choice = self.run.options.staged, None
        known = [answer.number for answer in self.answers]
        for number, stage in enumerate(self.plan.stages):
            if stage.left_out or not self._train(number):
                continue
            if staged and number not in known:
                choice = self._answer(number)
                if choice.ended is not None:
                    return choice
        if not staged:
            return self._answer(len(self.plan.stages) - 1)
        last = self.answers.pop()  # the stages after it were left out: it is the last one
        return self._answer(last.number, since=last.seconds)

    # training

    def _train(self, number: int) -> bool:
        """Train a stage on all folds. Returns whether any of it could be done."""
        run, stage, folds = self.run, self.plan.stages[number], self.run.folds()
        entries = [
            run.entry(name, setting, *fold, seed)
            for name, every in (("folds", stage.trainings), ("sessions", stage.online))
            for setting, seed in every
            for fold in folds
        ]
        statuses = run.ledger.statuses()
        todo = [entry for entry in entries if statuses.get(entry.key) not in FINISHED]
        needed = not self.answers and (number == 0 or run.options.staged)
        if todo and not needed and not self._fits(stage):
            self._leave_out(number, self._too_long(stage))
            return False
        run.add(entries)  # also finished ones: jobs are counted
        if not todo:
            return True
        later = self.plan.stages[number + 1 :]
        ahead = sum(self._cost(next_stage) for next_stage in later if not next_stage.left_out)
        limited = not needed and math.isfinite(self.left)
        limit = [self.left, time.time()] if limited else []
        run.ledger.remember(ahead=max(0.0, min(ahead, self.left - self._cost(stage))), limit=limit)
        cost = f", {span(self._cost(stage))}" if stage.seconds else ""
        self.tell(f"stage {number + 1} of {len(self.plan.stages)}: {stage.words} on {len(folds)} folds{cost}")
        if isinstance(run.executor, LocalExecutor):
            run.executor.until = math.inf if needed else time.monotonic() + self.left_to_train
        began = time.monotonic()
        expected = self._training(stage) * self.slowness * len(todo) / len(entries)
        try:
            run.work(shown=self.shown, label=stage.name, expected=expected or None, counted=entries)
        except OutOfTime:
            run.drop([entry.key for entry in entries])
            self._leave_out(number, GIVEN_UP)
            return False
        finally:
            limit = [self.left, time.time()] if limited else []
            run.ledger.remember(spent=self.spent, limit=limit)
        if stage.seconds and len(todo) == len(entries) and not stage.solved:
            self.trained += time.monotonic() - began
            self.foreseen += self._training(stage)
        return True

    def _fits(self, stage: Stage) -> bool:
        """Whether a stage can be trained before the last answer must be begun."""
        return self._training(stage) * self.slowness <= self.left_to_train and self.left_to_train > 0

    @property
    def slowness(self) -> float:
        """Measured over planned seconds of all stages so far: a single kind of network may be off by more."""
        return self.trained / self.foreseen if self.foreseen > 0 else 1.0

    def _training(self, stage: Stage) -> float:
        """Planned seconds of a stage without its answer; 0 where it was not timed."""
        return max(0.0, stage.seconds - answer_seconds(self.run.recordings))

    def _cost(self, stage: Stage) -> float:
        """Seconds of a stage with its answer, as measured so far."""
        if not stage.seconds:
            return 0.0
        return self._training(stage) * self.slowness + (self.answering or stage.seconds - self._training(stage))

    def _too_long(self, stage: Stage) -> str:
        return f"it would have taken about {clock(self._cost(stage))}" if stage.seconds else "no time was left"

    def _leave_out(self, number: int, why: str) -> None:
        stage = replace(self.plan.stages[number], left_out=why)
        self.plan = self.plan.with_stage(number, stage)
        self.run.ledger.remember(plan=self.plan)
        self.tell(f"left out {stage.name}: {why}")

    # answers

    def _candidates(self, numbers: Sequence[int]) -> list[Setting]:
        """Settings of these stages, those of earlier answers first."""
        return list(dict.fromkeys(s for number in numbers for s in self.plan.stages[number].settings))

    def _answer(self, number: int, since: float | None = None) -> Choice:
        """Answer from everything that is trained. since: seconds of an earlier answer, which is made again as the last
        one."""
        began = time.monotonic()
        with threads(min(FEW, cores())):
            choice = self._decided(number, since)
        self.answering = max(self.answering, time.monotonic() - began - self.extras)
        return choice

    def _decided(self, number: int, since: float | None) -> Choice:
        run, staged = self.run, self.run.options.staged
        done = [answer.number for answer in self.answers] + [number]
        if not staged:
            done = [n for n, stage in enumerate(self.plan.stages) if not stage.left_out]
        candidates = self._candidates(done)

        def revise(held_out: HeldOutLogProbs, nested: Nested) -> Nested:
            return self._revised(number, since, held_out, nested)

        with working("weights and estimates", shown=self.shown):
            choice, weights, nested = decide(run, candidates, revise if staged else None)
        ended = self._ended(number) if staged else None
        if out_of_time(ended):
            self._leave_out_rest(number)
        write_results(run)
        last = ended is not None or not staged
        least = LATE if last and len(self.answers) > 1 else EARLY
        began = time.monotonic()
        late = began + (max(self.left, least) if last else least)
        with working("scoring simple models", shown=self.shown):
            scored, skipped = peer_scores(run, late if math.isfinite(late) else None)
        peers = {name: run.by_person(scores) for name, scores in scored.items()}
        choice = replace(choice, baselines=peers, skipped_baselines=skipped)
        online = None
        if nested is not None:
            centred = dict.fromkeys(setting for n in done for setting, _ in self.plan.stages[n].online)
            with working("weights for sessions", shown=self.shown):
                online = find_online(run, candidates, list(centred))
            choice = replace(choice, playback=self._play(candidates, nested, late, since, online, last=last))
        self.extras = time.monotonic() - began
        choice = replace(choice, left_out=[*self.plan.left_out, *left_out_words(self.plan)])
        if staged:
            choice = replace(choice, stages=self.answers, ended=ended)
        with working("building models", shown=self.shown):
            averages = None if online is None else (online.settings, online.weights)
            build_models(run, candidates, weights, choice, averages)
        if staged and since is None:  # predict can use it from now on
            self.answers[-1] = replace(self.answers[-1], seconds=self.spent)
            choice = replace(choice, stages=self.answers)
        write_atomically(run.folder / "choice.json", json.dumps(schema.to_values(choice), indent=1))
        write_plan(run.folder, self.plan.as_performed(done))
        facts = {"complete": True, "ended": ended or ""} if last else {}
        run.ledger.remember(answers=self.answers, answered=len(self.answers), spent=self.spent, choice=choice, **facts)
        if self.answered is not None:
            self.answered(run, choice)
        if staged and not last:
            stage = self.answers[-1]
            whom = "people" if run.data.units is None else f"each {run.options.hold_out}"
            self.tell(f"answer after {clock(stage.seconds)}: {stage.score:.3f} on {whom} left out; predict can use it")
        return choice

    def _play(
        self, candidates: Sequence[Setting], nested: Nested, late: float, since: float | None,
        online: OnlineWeights | None, *, last: bool,
    ) -> Playback | None:  # fmt: skip
        """Held-out people use the first answer, which is quick, and the last. Answers in between keep the playback of
        the first. So does a last answer that repeats the first, or that of a run which had ended and was given more
        time, unless there was no time for it then."""
        before = self.run.ledger.recall("choice", Choice)
        had_ended = before is not None and before.ended is not None
        repeated = since is not None and (len(self.answers) == 1 or had_ended)
        if repeated or (len(self.answers) > 1 and not last):
            earlier = None if before is None else before.playback
            if earlier is not None or not repeated:
                return earlier
        with working("held-out people use the model", shown=self.shown):
            until = late if math.isfinite(late) else None
            return play_back(self.run, candidates, nested, self.played, until, online)

    def _ended(self, number: int) -> str | None:
        """Why no other stage follows; None where one does."""
        answered = {answer.number for answer in self.answers}  # later ones too, if there was no time for this at first
        later = [stage for n, stage in enumerate(self.plan.stages) if n > number and n not in answered]
        ahead = [stage for stage in later if not stage.left_out]
        if not ahead:
            cut = any(stage.left_out for stage in self.plan.stages)
            return self._no_room() if cut else "everything in its plan was trained"
        if self.plan.fixed:
            return None
        if self.plan.stops and not expects_gain([answer.scores for answer in self.answers]):
            return "no more gain was expected"
        return None if any(map(self._fits, ahead)) else self._no_room()

    def _no_room(self) -> str:
        """Why a run ends before all is trained: its limit may be far, if each stage that is left takes longer."""
        over = self.left_to_train < 1 or any(stage.left_out == GIVEN_UP for stage in self.plan.stages)
        return OVER if over or math.isinf(self.left) else f"{NO_ROOM} {clock(self.left)}"

    def _leave_out_rest(self, number: int) -> None:
        """Stages after this one that no time is left for. The answer names them: no line for each."""
        for place, stage in enumerate(self.plan.stages):
            if place > number and not stage.left_out:
                self.plan = self.plan.with_stage(place, replace(stage, left_out=self._too_long(stage)))

    def _revised(self, number: int, since: float | None, held_out: HeldOutLogProbs, nested: Nested) -> Nested:
        """Note the answer. People without whom the run would have stopped earlier are scored with the answer of that
        time."""
        names = {person: str(self.run.recordings.subjects[person]) for person in nested.log_probs}
        scores = {names[person]: held_out.score(person, log_p) for person, log_p in nested.log_probs.items()}
        seconds = self.spent if since is None else since
        by_person = self.run.by_person(scores)
        self.answers.append(StageScore.of(self.plan.stages[number].name, number, seconds, scores, by_person))
        self.nested[len(self.answers)] = nested
        if not self.plan.stops:
            return nested
        weights, log_probs = dict(nested.weights), dict(nested.log_probs)
        for block in held_out.together:
            n = stopped_at(self.answers, {names[person] for person in block})
            if n == len(self.answers):
                continue
            earlier = self._nested_after(n)
            for person in block:
                exponents = earlier.weights[person].exponents
                weights[person] = Weights(np.pad(exponents, (0, len(held_out.candidates) - len(exponents))))
                log_probs[person] = earlier.log_probs[person]
        return Nested(weights, log_probs)

    def _nested_after(self, n: int) -> Nested:
        """Nested weights of the first n answers, fitted again after a resume."""
        if n not in self.nested:
            numbers = [answer.number for answer in self.answers[:n]]
            candidates = self._candidates(numbers)
            keys = {
                self.run.entry("", setting, *fold, seed).key
                for number in numbers
                for setting, seed in self.plan.stages[number].trainings
                for fold in self.run.folds()
            }
            entries = [entry for entry in self.run.ledger.entries() if entry.key in keys]
            held_out = HeldOutLogProbs.of(self.run, candidates, entries)
            self.nested[n] = find_nested(held_out, trained_candidates(candidates, entries))
        return self.nested[n]


def write_results(run: Run) -> None:
    trainings = trained(run.ledger.entries(), run.data.subjects, run.options.name_of, run.groups)
    write_atomically(run.folder / "results.csv", csv_of(results_table(trainings)))
