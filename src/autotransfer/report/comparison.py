"""Who is compared with whom: the rows of the results figure, each a test score per subject."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..censoring import CENSORS
from ..training.scoring import BALANCED_ACCURACY
from .outcomes import finite_scores, scores_on_test, scores_on_validation
from .summary import Summary
from .wording import method_label

ESTIMATES = ("published", "nested")
PEER = "peer"  # how keys of simple models begin; the number of each, which decides how it is drawn, comes next
OURS = (*ESTIMATES, "choosing", "equal")  # what AutoTransfer delivers, and what its candidates could have given


@dataclass(frozen=True)
class Candidate:
    """A setting of stage two by its validation scores. Test scores are not in it."""

    name: str
    method: str  # "none": uncensored
    q25: float  # lower quartile over subjects
    mean: float


@dataclass(frozen=True)
class Contender:
    """One row of the results figure."""

    key: str  # "none", "uncensored", a method or one of OURS: decides the colour
    label: str
    setting: str | None  # its name; None: it differs between subjects
    scores: dict[str, float]  # test score by subject, mean over seeds

    @property
    def is_autotransfer(self) -> bool:
        return self.key in ESTIMATES

    @property
    def is_method(self) -> bool:
        """Whether it is a penalty method, one of the candidates."""
        return self.key not in ("none", *OURS) and not self.is_peer

    @property
    def is_peer(self) -> bool:
        """Whether it is a simple model, a few lines of code without a network."""
        return self.key.startswith(PEER)


def ranking(summary: Summary) -> list[Candidate]:
    """The candidates of stage two, the best first: by mean where candidates are averaged, else by lower quartile."""
    candidates = []
    for name, scores in scores_on_validation(summary).items():
        values, method = list(scores.values()), summary.settings[name].method or "none"
        candidates.append(Candidate(name, method, float(np.percentile(values, 25)), float(np.mean(values))))
    if summary.average is not None:
        return sorted(candidates, key=lambda candidate: (-candidate.mean, -candidate.q25))
    return sorted(candidates, key=lambda candidate: (-candidate.q25, -candidate.mean))


def contenders(summary: Summary) -> list[Contender]:
    """Baseline, methods in their usual order, simple models, alternatives with the same candidates, and the nested
    estimates of AutoTransfer."""
    best: dict[str, str] = {}  # method -> the setting that stands for it, by validation alone
    for candidate in ranking(summary):
        best.setdefault(candidate.method, candidate.name)
    scores, choice = scores_on_test(summary), summary.choice
    order = dict.fromkeys(["none", *CENSORS, *best])
    rows = [Contender(m, method_label(m), best[m], scores.get(best[m], {})) for m in order if m in best]
    if choice is not None:
        baseline = Contender("none", method_label("none"), choice.baseline.name, choice.test_scores["baseline"])
        front = [baseline] if choice.has_plain_network else []
        if (uncensored := choice.best_uncensored.name) != choice.baseline.name:
            tests = choice.test_scores.get("best_uncensored", {})
            front.append(Contender("uncensored", "Best uncensored", uncensored, tests))
        # Records of trainings hold balanced accuracies, which stand beside no other metric.
        methods = rows if choice.metric == BALANCED_ACCURACY else []
        rows = [*front, *(row for row in methods if row.key != "none")]
        peers = enumerate(choice.peers.items())
        rows += [Contender(f"{PEER} {place} {name}", name, None, tests) for place, (name, tests) in peers]
        if choice.average is None:
            tests = choice.test_scores["chosen"]
            rows.append(Contender("published", "AutoTransfer, published", choice.chosen.name, tests))
        else:
            rows.append(Contender("choosing", "Choosing alone", None, choice.average.choosing_test_scores))
            rows.append(Contender("equal", "Equal weights", None, choice.average.equal_test_scores))
        rows.append(Contender("nested", "AutoTransfer, nested", None, choice.nested_test_scores))
    rows = [replace(row, scores=finite_scores(row.scores)) for row in rows]
    return [row for row in rows if row.scores]


def find(rows: list[Contender], *keys: str) -> Contender | None:
    """The first of `keys` that is there."""
    return next((row for key in keys for row in rows if row.key == key), None)


def strictest_estimate(rows: list[Contender]) -> Contender | None:
    """The estimate that the headline rests on: the strictest there is."""
    return find(rows, "nested", "published")


def rival(rows: list[Contender]) -> Contender | None:
    """What the delivered model has to beat to be worth its cost: the simple model that scores highest, or the plain
    network where no simple model was scored."""
    peers = [row for row in rows if row.is_peer]
    return max(peers, key=lambda row: np.mean(list(row.scores.values())), default=find(rows, "none"))


def subject_order(rows: list[Contender]) -> list[str]:
    """Test subjects from worst to best under the baseline; those it was not tested on come last."""
    base = find(rows, "none")
    first = base.scores if base else {}
    others = dict.fromkeys(s for row in rows for s in row.scores if s not in first)
    return sorted(first, key=lambda s: first[s]) + list(others)
