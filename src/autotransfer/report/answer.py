"""The top of the page: what was found, how sure it is, and what the numbers are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .comparison import Contender, find, honest
from .escaping import Html, joined, tag
from .outcomes import numbers
from .statistics import FEWEST_TO_TEST, Paired, paired
from .summary import Summary
from .tables import setting_names
from .wording import MODE_MEANING, count, given, interval, probability, score, setting_words, signed, verdict


def answer(summary: Summary, rows: list[Contender]) -> Html:
    """The section that a reader in a hurry reads."""
    if not summary.complete:
        return incomplete(summary)
    base, best = find(rows, "none"), honest(rows)
    pair = paired(best.scores, base.scores) if base and best else None
    found = verdict(summary.choice, pair)
    return tag(
        "section",
        tag("h2", found.headline, id="answer-title"),
        tag("p", found.sentence, class_="lead"),
        _meaning(summary),
        _tiles(pair) if pair and best else None,
        _caveats(summary, rows, pair),
        class_=f"answer {found.kind}",
        id="answer",
        aria_labelledby="answer-title",
    )


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


def _meaning(summary: Summary) -> Html | None:
    chosen = (summary.choice or {}).get("chosen") or {}
    meaning = MODE_MEANING.get(str(given(chosen, "mode")))
    return tag("p", f"In {chosen['mode']} mode, {meaning}.", class_="meaning") if meaning else None


def _tiles(pair: Paired) -> Html:
    changed = f"{pair.losses} lost" + (f", {pair.ties} unchanged" if pair.ties else "")
    tiles = (
        ("AutoTransfer", score(pair.first.mean), f"baseline {score(pair.second.mean)}"),
        ("Difference", signed(pair.mean), f"{interval(pair)} (95\u00a0%)"),
        ("Lower quartile", score(pair.first.lower_quartile), f"baseline {score(pair.second.lower_quartile)}"),
        ("Subjects that gained", f"{pair.wins} of {pair.n}", changed),
    )
    inside = (tag("div", tag("dt", a), tag("dd", tag("b", b), tag("span", c))) for a, b, c in tiles)
    return tag("dl", *inside, class_="tiles")


def _caveats(summary: Summary, rows: list[Contender], pair: Paired | None) -> Html | None:
    items = [
        *failed_jobs(summary),
        *_adaptation(summary),
        *_other_causes(summary),
        *_estimate_notes(summary, rows),
        *_test_notes(pair),
    ]
    if not items:
        return None
    return joined(
        tag("h3", "What these numbers are"), tag("ul", *(tag("li", item) for item in items), class_="caveats")
    )


def failed_jobs(summary: Summary) -> list[Html]:
    n = int(summary.results["failed"].sum())
    if not n:
        return []
    link = tag("a", f"{count(n, 'job')} failed", href="#failures")
    return [joined(link, tag("span", "; when settings are compared, a failed job counts as a score of 0."))]


ADAPTED = {
    "transductive": ("Transductive", "statistics of all of the test subject's own unlabelled trials prepare each of "
        "them. The scores hold for new people only if their data are at hand before the first prediction; do not "
        "compare them with zero-shot scores."),
    "running": ("Adapts to each new person", "every trial of a test subject is prepared with the subject's own "
        "unlabelled trials up to it, in order, and a prior from the training subjects. The scores hold for people "
        "whose trials come in order; they are no zero-shot scores."),
}  # fmt: skip


def _adaptation(summary: Summary) -> list[Html]:
    """Which scores rest on unlabelled trials of the test subjects."""
    choice = summary.choice or {}
    sides = [_adapts(choice.get(side) or {}) for side in ("chosen", "baseline")]
    nested = [str(kind) for kind in (choice.get("nested_adaptations") or {}).values()]
    notes = []
    for kind, (label, words) in ADAPTED.items():
        whom = ""
        if sides == [kind, "none"]:
            whom = "this is true of AutoTransfer's choice, while the baseline is zero-shot: "
        elif kind not in sides:
            whom = f"this is true of the nested choices of {count(nested.count(kind), 'subject')}: "
        if kind in (*sides, *nested):
            notes.append(joined(tag("strong", f"{label}: "), tag("span", whom + words)))
    return notes


def _adapts(setting: Mapping[str, Any]) -> str:
    kinds = (setting.get("standardise"), setting.get("align"))
    return "transductive" if "subject" in kinds else "running" if "running" in kinds else "none"


def _other_causes(summary: Summary) -> list[str]:
    """What is censoring's part, where the search varied more than that."""
    choice = summary.choice or {}
    best, tests = choice.get("best_uncensored") or {}, choice.get("test_scores") or {}
    plain, nested = numbers(choice.get("nested_uncensored_test_scores")), numbers(choice.get("nested_test_scores"))
    part = paired(nested, plain)
    if part is not None and part.ties < part.n:
        return [
            f"The baseline is the plain network. Where only uncensored settings may be chosen, the nested choice of "
            f"the highest lower quartile scores {score(part.second.mean)}: censoring's own part of the difference is "
            f"{signed(part.mean)} ({interval(part)})."
        ]
    if not best or best.get("name") == (choice.get("baseline") or {}).get("name") or not tests.get("best_uncensored"):
        return []
    values = [float(value) for value in tests["best_uncensored"].values()]
    return [
        f"The baseline is the plain network. Validation ranks “{setting_words(best)}” first among the uncensored "
        f"settings; it scores {score(sum(values) / len(values))}. What the chosen setting gains over that, and no "
        "more, is censoring's."
    ]


def _estimate_notes(summary: Summary, rows: list[Contender]) -> list[str]:
    """Which number is which, and what each has seen."""
    notes = []
    best, published = honest(rows), find(rows, "published")
    if best and best.key == "nested":
        notes.append(
            "The scores above are nested: for each test subject the setting was chosen again without the validation "
            "scores measured on that subject. Its labels still took part in training the models of other folds and in "
            "the shortlist, so a little optimism may remain."
        )
    if best and best.key == "nested_full":
        notes.append(
            "The scores above are fully nested: for each test subject, shortlist and choice rest only on models and "
            "scores that never saw that subject."
        )
    if best and best.key == "published":
        notes.append(
            "The scores above are as published in the paper: the setting was chosen with validation scores that also "
            "stem from the test subjects, which is a little optimistic. The run recorded no nested estimate."
        )
    elif published and best:
        mean = sum(published.scores.values()) / len(published.scores)
        notes.append(
            f"As published in the paper, with one choice for all subjects, the score is {score(mean)}. That choice "
            "has seen validation scores of every subject, so read it as the optimistic one of the two."
        )
    notes += _nested_choices(summary)
    careful, chosen = ((summary.choice or {}).get(side) or {} for side in ("careful", "chosen"))
    if careful and given(careful, "method") is None and given(chosen, "method") is not None:
        notes.append(
            "Validation does not show that a censor is needed: among the baseline and the settings that are clearly "
            f"ahead of it, “{setting_words(careful)}” has the highest lower quartile."
        )
    return notes


def _nested_choices(summary: Summary) -> list[str]:
    choice = summary.choice or {}
    picks = Counter(
        str(name) for name in (choice.get("nested_full_choices") or choice.get("nested_choices") or {}).values()
    )
    if not picks:
        return []
    names = setting_names(summary)
    if len(picks) == 1:
        return [f"The nested choice is the same for all {sum(picks.values())} subjects, so the choice is stable."]
    words = "; ".join(f"{names.get(name, name)} for {count(n, 'subject')}" for name, n in picks.most_common(4))
    rest = f"; and {count(len(picks) - 4, 'other setting')}" if len(picks) > 4 else ""
    return [f"The nested choice varies: {words}{rest}."]


def _test_notes(pair: Paired | None) -> list[str]:
    if pair is None or pair.interval is None:
        return []
    notes = []
    if pair.ties == pair.n:
        notes.append("For every subject AutoTransfer and the baseline are the same model, or score the same.")
    elif pair.n < FEWEST_TO_TEST:
        notes.append(
            f"With only {pair.n} subjects the interval is a rough guide, and no test of significance is possible."
        )
    elif pair.p is None:
        notes.append(f"Only {pair.wins + pair.losses} of {pair.n} subjects differ at all: too few for a test.")
    else:
        notes.append(
            f"Wilcoxon signed-rank test over {pair.n} subjects: p\u00a0{probability(pair.p, equals=True)}. "
            "Interval and test treat subjects as independent, although models of different folds share training data."
        )
    return notes
