"""The top of the page: the result, how certain it is, and the limits of the numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ..folds import SESSION
from ..runs.choice import Average, Choice
from ..runs.regression import RegressionChoice
from ..runs.verdict import mean
from ..settings import SUBJECT, Setting, nuisance_parts
from ..training.scoring import chance_words
from . import result_words
from .averaging import moved_weight
from .comparison import Contender, contenders, find, rival, strictest_estimate
from .escaping import Html, join_html, tag
from .statistics import FEWEST_TO_TEST, Paired, paired
from .summary import Summary
from .tables import details
from .wording import capital, count, interval, probability, score, setting_names, setting_words, share, signed

MODE_MEANING = {
    "marginal": "what the network extracts should not tell {what}",
    "conditional": "within each class, what the network extracts should not tell {what}",
    "complementary": "one half of what the network extracts should not tell {what}, the other half should",
}


def answer(summary: Summary, figure: Html | None = None) -> Html:
    """The first screen: the headline, what to expect of the next person, one figure; details are folded."""
    choice, rows = summary.choice, contenders(summary)
    if choice is None:
        return incomplete(summary)
    best, other = strictest_estimate(rows), rival(rows)
    pair = paired(best.scores, other.scores) if best and other else None
    meaning = _meaning(choice.chosen.setting) if choice.average is None else None
    alerts = chain(failed_jobs(summary), _adaptation(choice))
    left_out = [f"{capital(line)}. Everybody was tested all the same." for line in result_words.left_out_words(choice)]
    missing = [*map(capital, result_words.skipped_words(choice)), *left_out]
    notes = chain(
        _held_out(choice),
        _delivered(summary),
        _plain_network(rows),
        _other_causes(choice),
        _estimate_notes(choice, rows),
        _nested_choices(summary) if choice.average is None else _nested_weights(choice.average, choice.hold_out),
        _test_notes(pair, other),
    )
    return answer_section(
        choice,
        result_words.headline(choice),
        *(tag("p", note, class_="alert") for note in alerts),
        figure,
        *(tag("p", note, class_="missing") for note in missing),
        details(
            "What these numbers are",
            tag("p", f"In {choice.chosen.setting.mode} mode, {meaning}.", class_="meaning") if meaning else None,
            _tiles(summary, pair, other) if pair and other else None,
            tag("ul", *(tag("li", note) for note in notes), class_="caveats"),
        ),
    )


def answer_section(choice: Choice | RegressionChoice, lines: Sequence[str], *content: Html | None) -> Html:
    """The verdict as a title, the other lines of the headline, then the content."""
    sentence, *people = lines
    kind = "guessing" if choice.guesses else "unknown" if choice.best_peer is None else choice.best_peer.comparison
    return tag(
        "section",
        tag("h2", *_asides(sentence), id="answer-title"),
        tag("div", *(tag("p", *_labelled(line)) for line in people), class_="people"),
        *content,
        class_=f"answer {kind}",
        id="answer",
        aria_labelledby="answer-title",
    )


def _labelled(line: str) -> tuple[Html | str, ...]:
    """A line whose first words, up to the colon, say what it is."""
    label, _, rest = line.partition(":")
    return tag("strong", f"{label}:"), *_asides(rest)


def _asides(sentence: str) -> tuple[Html | str, ...]:
    """The sentence with text in brackets set back, for readers who have ten seconds."""
    pieces = re.split(r"(\([^()]*\))", sentence.replace(" %", "\u00a0%"))
    return tuple(tag("span", piece) if piece.startswith("(") else piece for piece in pieces if piece)


def _held_out(choice: Choice) -> list[str]:
    """What was held out, where that is not whole people."""
    if choice.hold_out == SUBJECT:
        return []
    if choice.hold_out == SESSION:
        return [
            "Sessions were held out, not people: each session was predicted by models that were trained on other "
            "sessions of the same person. A person's score is the mean over their sessions. It says nothing of people "
            "whom the model does not know."
        ]
    return [
        f"Each {choice.hold_out} was held out, not each person: what predicted the windows of a value was trained on "
        "none of them, but maybe on other windows of the same person. A person's score is the mean over their values."
    ]


def _delivered(summary: Summary) -> list[str]:
    """What the delivered model is."""
    choice = summary.choice
    assert choice is not None
    if choice.average is not None:
        return [
            f"Delivered: an {result_words.average_words(choice.average)}.{result_words.heaviest_words(choice.average)}"
        ]
    if not choice.baseline_won:
        return [f"Delivered: {setting_words(choice.chosen.setting, summary.plain)}, which validation favoured."]
    tried = "censoring did not help on these recordings" if choice.censor_tried else "no censor was tried"
    return [f"Delivered: the plain network. {result_words.NO_BETTER}; {tried}."]


def _plain_network(rows: list[Contender]) -> list[str]:
    """The delivered model minus a single plain network, which is no fair rival: it was trained with one seed."""
    best, base = strictest_estimate(rows), find(rows, "none")
    pair = paired(best.scores, base.scores) if best and base else None
    if pair is None or pair.ties == pair.n:
        return []
    return [f"A single plain network scores {score(pair.second.mean)}; what is delivered minus it is "
            f"{signed(pair.mean)} ({interval(pair)})."]  # fmt: skip


def _meaning(setting: Setting) -> str | None:
    """What the penalty of a setting is for."""
    penalty = setting.penalty
    if penalty is None or penalty.mode not in MODE_MEANING:
        return None
    columns = " and the ".join(nuisance_parts(penalty.nuisance))
    information = "who the subject is" if penalty.nuisance == SUBJECT else f"the {columns}"
    return MODE_MEANING[penalty.mode].format(what=information)


def incomplete(summary: Summary) -> Html:
    """A banner in place of any claim."""
    done, total = summary.jobs_done, max(summary.jobs_total, summary.jobs_done)
    bar = Html(f'<progress value="{int(done)}" max="{max(int(total), 1)}" aria-label="jobs done"></progress>')
    known = f"{done:,} of the {count(total, 'job')} known so far are done"
    return tag(
        "section",
        tag("h2", "INCOMPLETE: this run has not finished", id="answer-title"),
        bar,
        tag("p", f"{known}. What follows is what has been measured; nothing has been chosen yet, and no conclusion "
            "can be drawn. Continue with ", tag("code", "autotransfer resume"), ".", class_="lead"),
        *(tag("p", note) for note in failed_jobs(summary)),
        class_="answer incomplete",
        id="answer",
        role="status",
        aria_labelledby="answer-title",
    )  # fmt: skip


def _tiles(summary: Summary, pair: Paired, other: Contender) -> Html:
    """The delivered model and the best simple model, or the plain network where there is none."""
    changed = f"{pair.losses} lost" + (f", {pair.ties} unchanged" if pair.ties else "")
    chance = chance_words(summary.chance)
    tiles = (
        (capital(summary.metric), score(pair.first.mean), f"{other.label} {score(pair.second.mean)}, {chance}"),
        ("Difference", signed(pair.mean), f"{interval(pair)} (95\u00a0%)"),
        ("Lower quartile", score(pair.first.lower_quartile), f"{other.label} {score(pair.second.lower_quartile)}"),
        ("Subjects that gained", f"{pair.wins} of {pair.n}", changed),
    )
    inside = (tag("div", tag("dt", a), tag("dd", tag("b", b), tag("span", c))) for a, b, c in tiles)
    return tag("dl", *inside, class_="tiles")


def failed_jobs(summary: Summary) -> list[Html]:
    n = sum(training.failed for training in summary.trainings)
    if not n:
        return []
    link = tag("a", f"{count(n, 'job')} failed", href="#failures")
    return [join_html(link, tag("span", "; when settings are compared, a failed job counts as a score of 0."))]


ADAPTED = {
    "transductive": ("Transductive", "statistics of all of the test subject's own unlabelled trials preprocess each of "
        "them. The scores hold for new people only if their data are at hand before the first prediction; do not "
        "compare them with zero-shot scores."),
    "online": ("Adapts to each new person", "every trial of a test subject is preprocessed with the subject's own "
        "unlabelled trials up to it, in order, and a prior from the training subjects. The scores hold for people "
        "whose trials come in order; they are not zero-shot scores."),
}  # fmt: skip


def _adaptation(choice: Choice) -> list[Html]:
    """Which scores rest on unlabelled trials of the test subjects."""
    averaged = choice.average is not None
    sides = [choice.adaptation if averaged else choice.chosen.setting.adaptation, choice.baseline.setting.adaptation]
    delivered = "average" if averaged else "choice"
    nested = list(choice.nested_adaptations.values())
    notes = []
    for kind, (label, words) in ADAPTED.items():
        whom = ""
        if sides == [kind, "none"]:
            whom = f"this is true of AutoTransfer's {delivered}, while the baseline is zero-shot: "
        elif kind not in sides:
            whom = f"this is true of the nested {delivered}s of {count(nested.count(kind), 'subject')}: "
        if kind in (*sides, *nested):
            notes.append(join_html(tag("strong", f"{label}: "), tag("span", whom + words)))
    return notes


def _other_causes(choice: Choice) -> list[str]:
    """How much of the gain is due to censoring, where the search varied more than the penalty."""
    if choice.average is not None:
        return _averages_causes(choice)
    part = paired(choice.nested_test_scores, choice.nested_uncensored_test_scores)
    if part is not None and part.ties < part.n:
        return [
            f"Where only uncensored settings may be chosen, the nested choice "
            f"scores {score(part.second.mean)}: censoring's own part of the difference is {signed(part.mean)} "
            f"({interval(part)})."
        ]
    best, best_score = choice.best_uncensored, mean(choice.test_scores.get("best_uncensored", {}))
    if best.name == choice.baseline.name or best_score is None:
        return []
    return [
        f"Validation ranks “{setting_words(best.setting, choice.baseline.setting)}” "
        f"first among the uncensored settings; it scores {score(best_score)}. What the chosen setting gains over "
        "that, and no more, is due to censoring."
    ]


def _averages_causes(choice: Choice) -> list[str]:
    """How much of the gain an ensemble of plain networks, or uncensored candidates alone, would have had."""
    notes, nested = [], choice.nested_test_scores
    plain = paired(nested, choice.delivered_test_scores.get("baseline", {}))
    if plain is not None and choice.has_plain_network:
        notes.append(
            f"An ensemble of plain networks scores {score(plain.second.mean)}; the average minus it is "
            f"{signed(plain.mean)} ({interval(plain)})."
        )
    part = paired(nested, choice.nested_uncensored_test_scores)
    if part is not None and part.ties < part.n:
        notes.append(
            f"Averaged over uncensored candidates alone, the score is {score(part.second.mean)}: censoring's own part "
            f"of the difference is {signed(part.mean)} ({interval(part)})."
        )
    return notes


def _estimate_notes(choice: Choice, rows: list[Contender]) -> list[str]:
    """How each score was estimated, and which data it has seen."""
    notes = []
    best, published = strictest_estimate(rows), find(rows, "published")
    if best and best.key == "nested" and choice.average is not None:
        notes.append(
            "The scores above are nested, that is, reweighted without the person: for each test subject, weights and "
            "temperature were found again without the trainings that held that subject out. Its labels still took "
            "part in the other trainings, so a little optimism may remain."
        )
    elif best and best.key == "nested":
        notes.append(
            "The scores above are nested, that is, reselected without the person: for each test subject the setting "
            "was chosen again without the validation scores measured on that subject. Its labels still took part in "
            "training the models of other folds and in the shortlist, so a little optimism may remain."
        )
    if published:
        notes.append(
            "As published in the paper, with one choice for all subjects, the score is "
            f"{score(mean(published.scores))}. That choice has seen validation scores of every "
            "subject, so it is the more optimistic estimate."
        )
    notes += [
        f"{capital(line)}. A constant prediction would be right for them; they trained, but are in no mean."
        for line in result_words.not_scored_words(choice)
    ]
    return notes


def _nested_weights(average: Average, hold_out: str) -> list[str]:
    """How much the weights change when one person is left out."""
    moved = moved_weight(average)
    if not moved:
        return []
    held_out = count(len(moved), "subject") if hold_out == SUBJECT else count(len(moved), "part", "parts held out")
    return [
        f"Without one of the {held_out}, {share(float(np.mean(moved)))} of the weight moves to "
        f"other candidates on average, and {share(max(moved))} at most."
    ]


def _nested_choices(summary: Summary) -> list[str]:
    assert summary.choice is not None
    picks = Counter(summary.choice.nested_choices.values())
    if not picks:
        return []
    names = setting_names(summary)
    if len(picks) == 1:
        return [f"The nested choice is the same for all {sum(picks.values())} subjects, so the choice is stable."]
    words = "; ".join(f"{names.get(name, name)} for {count(n, 'subject')}" for name, n in picks.most_common(4))
    rest = f"; and {count(len(picks) - 4, 'other setting')}" if len(picks) > 4 else ""
    return [f"The nested choice varies: {words}{rest}."]


def _test_notes(pair: Paired | None, other: Contender | None) -> list[str]:
    if pair is None or pair.interval is None or other is None:
        return []
    notes = []
    if other.is_peer:
        notes.append(
            f"{other.label} is the simple model that scores highest on these people. To pick it by these very scores "
            "favours it, so the difference is rather too small than too large."
        )
    if pair.ties == pair.n:
        notes.append(f"For every subject what is delivered and {other.label} are the same model, or score the same.")
    elif pair.n < FEWEST_TO_TEST:
        notes.append(
            f"With only {pair.n} subjects the interval is a rough guide, and no test of significance is possible."
        )
    elif pair.p is None:
        notes.append(f"Only {pair.wins + pair.losses} of {pair.n} subjects differ at all: too few for a test.")
    else:
        notes.append(
            f"Wilcoxon signed-rank test against {other.label} over {pair.n} subjects: p\u00a0"
            f"{probability(pair.p, equals=True)}. Interval and test treat subjects as independent, although models of "
            "different folds share training data."
        )
    return notes
