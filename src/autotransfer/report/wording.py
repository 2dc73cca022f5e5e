"""Settings, durations and verdicts in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .pooled import Pooled
from .statistics import FEWEST_TO_TEST, Paired
from .terminal import no_censor_tried

METHOD_NAMES = {
    "none": "Baseline",
    "adversary": "Adversary",
    "mige": "MIGE",
    "mmd": "MMD",
    "pairwise_mmd": "Pairwise MMD",
    "began": "BEGAN",
}
SIGNIFICANT = 0.05  # corrected p below this is called significant
ESTIMATOR_NAMES = {"ssge": "SSGE", "stein": "Stein", "tikhonov": "Tikhonov", "nu_method": "ν-method"}
MODE_MEANING = {
    "marginal": "what the network extracts should not tell who the subject is",
    "conditional": "within each class, what the network extracts should not tell who the subject is",
    "complementary": "one half of what the network extracts should not tell who the subject is, the other half should",
}
STEADY = "schedule constant, keep last"  # in a setting's name; docs/method.md has a name for the two


@dataclass(frozen=True)
class Verdict:
    """What the run found, in one line and one sentence."""

    kind: str  # "gain", "unclear", "loss", "baseline" or "unknown"
    headline: str
    sentence: str


def given(fields: Mapping[str, Any], key: str) -> Any:
    """The field, or None where it plays no role: tables write that as "none" or leave it empty."""
    value = fields.get(key)
    if value is None or value in ("none", "") or (isinstance(value, float) and math.isnan(value)):
        return None
    return value


def setting_words(fields: Mapping[str, Any]) -> str:
    """A setting as a person would say it: 'MMD, conditional, λ = 0.3'."""
    _, _, traits = str(given(fields, "name") or given(fields, "setting") or "").partition(" with ")
    traits = traits.replace(STEADY, "steady training")
    method = given(fields, "method")
    if method is None:
        return f"Uncensored, {traits}" if traits else "Uncensored baseline"
    words = [METHOD_NAMES.get(str(method), str(method))]
    if (mode := given(fields, "mode")) is not None:
        words.append(str(mode))
    if (strength := given(fields, "strength")) is not None:
        words.append(f"λ\u00a0=\u00a0{number(strength)}")
    if (estimator := given(fields, "estimator")) is not None:
        words.append(ESTIMATOR_NAMES.get(str(estimator), str(estimator)))
        if (gamma := given(fields, "regularization")) is not None:
            words.append(f"γ\u00a0=\u00a0{number(gamma)}")
    if (scale := given(fields, "length_scale")) not in (None, "median"):
        words.append(f"{scale} scale" if isinstance(scale, str) else f"σ\u00a0=\u00a0{number(scale)}")
    return ", ".join([*words, traits] if traits else words)


def number(value: Any) -> str:
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def score(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def signed(value: float) -> str:
    """With a true minus, and no sign on what rounds to zero."""
    text = f"{abs(value):.3f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def interval(pair: Paired | Pooled) -> str:
    return "–" if pair.interval is None else f"{signed(pair.interval[0])} to {signed(pair.interval[1])}"


def probability(p: float | None, *, equals: bool = False) -> str:
    if p is None:
        return "–"
    if p < 0.001:
        return "<\u00a00.001"
    return f"=\u00a0{p:.3f}" if equals else f"{p:.3f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def moment(iso: str) -> str:
    """A time as people write it; what is no ISO time is left as it is."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = "" if time.tzinfo is None else " UTC" if not time.utcoffset() else f" UTC{time:%z}"
    return f"{time.day} {time:%B %Y, %H:%M}{zone}"


def count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def significance(corrected: Mapping[str, float | None], gains: Mapping[str, float]) -> str:
    """Which methods differ from the baseline once p is corrected for their number. gains: their mean differences."""
    tested = {name: p for name, p in corrected.items() if p is not None}
    if not tested:
        return f"No method could be tested against the baseline: that takes {FEWEST_TO_TEST} subjects that differ."
    found = {name: p for name, p in tested.items() if p < SIGNIFICANT}
    if not found:
        least = probability(min(tested.values()), equals=True)
        return (
            f"No method differs significantly from the baseline: after correction for {count(len(tested), 'method')} "
            f"the smallest p\u00a0{least}. Differences of this size may be chance."
        )
    sides = {"better": [n for n in found if gains[n] > 0], "worse": [n for n in found if gains[n] <= 0]}
    told = [f"{' and '.join(METHOD_NAMES.get(n, n) for n in names)} {side}" for side, names in sides.items() if names]
    rest = len(tested) - len(found)
    others = f"; {count(rest, 'method')} without a significant difference" if rest else ""
    return f"Significantly different from the baseline, corrected for {len(tested)}: {', '.join(told)}{others}."


NOTHING_CLEARLY_BETTER = "Nothing was clearly better than the plain network on these recordings"


def verdict(choice: Mapping[str, Any] | None, pair: Paired | None) -> Verdict:
    """The headline. A gain is claimed only for enough subjects and where the whole interval lies above zero."""
    if choice is None:
        return Verdict("unknown", "Nothing has been chosen", "The run recorded no choice.")
    chosen = setting_words(choice.get("chosen") or {})
    what = _subject_of_the_claim(choice)
    if choice.get("baseline_won") and no_censor_tried(choice):
        return Verdict(
            "baseline",
            NOTHING_CLEARLY_BETTER,
            "By validation none gave reason enough to leave the plain network. No censor was tried.",
        )
    if choice.get("baseline_won"):
        return Verdict(
            "baseline",
            NOTHING_CLEARLY_BETTER if choice.get("lead") else "Censoring did not help on these recordings",
            "By validation no setting gave reason enough to leave the uncensored baseline, so AutoTransfer kept it.",
        )
    if pair is None or pair.interval is None:
        return Verdict("unknown", f"Chosen: {chosen}", "There are too few test scores to compare it with the baseline.")
    scores = f"{score(pair.first.mean)} against {score(pair.second.mean)}"
    low, high = pair.interval
    if pair.n < FEWEST_TO_TEST:
        return Verdict(
            "unclear",
            f"{count(pair.n, 'subject')}: too few to tell whether {_lower(what)} helps",
            f"AutoTransfer scored {scores} for the uncensored baseline. It chose {chosen}.",
        )
    if low > 0:
        return Verdict(
            "gain",
            f"{what} helped on unseen subjects: {signed(pair.mean)} balanced accuracy",
            f"AutoTransfer scored {scores} for the uncensored baseline. It chose {chosen}.",
        )
    if high < 0:
        return Verdict(
            "loss",
            f"{what} lowered the score on unseen subjects: {signed(pair.mean)} balanced accuracy",
            f"AutoTransfer scored {scores} for the uncensored baseline. It chose {chosen}, which validation favoured.",
        )
    return Verdict(
        "unclear",
        f"No clear gain from {_lower(what)} on these recordings",
        f"AutoTransfer scored {scores} for the uncensored baseline, and the interval for the difference includes "
        f"zero. It chose {chosen}, which validation favoured.",
    )


def _subject_of_the_claim(choice: Mapping[str, Any]) -> str:
    """Censoring, where nothing else tells the chosen setting from the baseline: a gain has one cause then."""
    names = [(choice.get("chosen") or {}).get("name", ""), *(choice.get("nested_choices") or {}).values()]
    if any(" with " in str(name) for name in names):
        return "The chosen setting"
    return "Censoring"


def _lower(words: str) -> str:
    return words[0].lower() + words[1:]
