"""Lines for a terminal: the result of a run, and the comparison of two runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ..errors import UserError
from ..folds import SUBJECT
from ..models.adaptation import NO_ADAPTATION
from ..runs.choice import HARM, Choice, ReplayResult, read_choice
from ..runs.database import RunDatabase
from ..runs.headline import mean, short_name
from ..tasks import label_of
from ..training.intervals import describe_next_subject
from ..words import count, range_words, score, signed
from .escaping import shorten_label
from .findings import USELESS, describe_below, describe_metric, describe_target_intervals, is_useless, metric_label
from .statistics import PairedComparison, compare_paired
from .wording import probability

MOST_LABELS = 5  # maximum number of labels per class for which the terminal prints the gain
NUMBERS = {1: "One", 2: "Two", 5: "Five", 10: "Ten"}
BASELINE_LETTERS = 60  # longest name of a baseline that is not shortened


def result_lines(choice: Choice, folder: Path | str = "RUN") -> list[str]:
    """Return at most seven lines: scores, gains, a conclusion and a next step. folder: folder of the run."""
    gains = [describe_target_intervals(choice)] if choice.task.is_numeric else _describe_gains(choice)
    expected = describe_next_subject(choice.next_subject, choice.hold_out, metric=metric_label(choice)) or ""
    lines = [_score_line(choice), _describe_baseline(choice), f"{expected} {describe_below(choice)}".strip(), *gains]
    return [line for line in (*lines, _conclude(choice), _advise(choice, folder)) if line]


def _score_line(choice: Choice) -> str:
    subjects = count(len(choice.estimate), "held-out subject")
    if choice.hold_out != SUBJECT:
        subjects = f"{count(len(choice.estimate), 'subject')} with every {short_name(choice.hold_out)} held out"
    facts = []
    if choice.interval is not None:
        facts.append(f"95 % interval {score(choice.interval[0])} to {score(choice.interval[1])}")
    if choice.chance is not None:
        facts.append(choice.task.chance_words(choice.chance))
    value = f"{score(mean(choice.estimate))} {label_of(choice.metric)}"
    return f"Score: {value} on {subjects}" + (f" ({'; '.join(facts)})" if facts else "")


def _describe_baseline(choice: Choice) -> str:
    best, so_far = choice.best_baseline, " so far" * bool(choice.skipped_baselines)
    if best is None:
        return "Best baseline: none was scored"
    limits = "" if best.interval is None else f" (95 % interval {range_words(best.interval)})"
    name = short_name(best.name, BASELINE_LETTERS)
    return f"Best baseline{so_far}: {score(best.mean)}, {name}; difference {signed(best.difference)}{limits}"


def _describe_gains(choice: Choice) -> list[str]:
    replay = choice.replay
    if replay is None:
        is_used = choice.adaptation == "transductive"
        return [f"Unlabeled windows: {'all are used before the first prediction' if is_used else 'not tested'}"]
    sessions = "adapt" if replay.session_method != NO_ADAPTATION else "do not adapt"
    lines = [f"Unlabeled windows: gain {signed(replay.gain)} in online sessions, which {sessions}"]
    if replay.all_windows:
        use = (
            "with predict --adapt all"
            if replay.transductive_method != NO_ADAPTATION
            else "with all at once, which is not used"
        )
        lines = [f"{lines[0]}; {signed(replay.transductive_gain)} {use}"]
    number, pair = _find_gain_from_labels(replay)
    if pair is not None:
        n_subjects = len(next(iter(replay.zero_shot.values())))
        limits = "" if pair.interval is None else f" (95 % interval {range_words(pair.interval)})"
        fewer = f"; {pair.n} of {n_subjects} subjects have enough windows" * (pair.n < n_subjects)
        change = f"from {score(pair.second.mean)} to {score(pair.first.mean)} on the remaining windows"
        values = f"{signed(pair.mean)}{limits}, {change}{fewer}"
        lines.append(f"{number} label{'s' * (number != 'One')} per class: {values}")
    return lines


def _find_gain_from_labels(replay: ReplayResult) -> tuple[str, PairedComparison | None]:
    """Return the number of labels in words, and a comparison of the scores with and without these labels."""
    numbers = [int(n) for n in replay.calibrated if int(n) <= MOST_LABELS]
    if not numbers:
        return "", None
    n = max(numbers)
    return NUMBERS.get(n, str(n)), compare_paired(replay.calibrated[str(n)], replay.before_calibration[str(n)])


def _conclude(choice: Choice) -> str:
    """Return a sentence with the conclusion from the scores."""
    if is_useless(choice):
        return f"The model is useless: {USELESS}"
    if choice.is_guessing:
        return f"No better than {choice.task.guess}: with random labels, models often score as high."
    best = choice.best_baseline
    if best is None:
        return f"The model is better than {choice.task.guess}."
    baseline = "the best baseline so far" if choice.skipped_baselines else "the best baseline"
    return {
        "better": f"The model is clearly better than {baseline}.",
        "worse": f"The model is clearly worse than {baseline}.",
        "similar": f"The model is better than {choice.task.guess}, but not clearly better than {baseline}.",
        "too few": f"{count(best.n_subjects, 'subject')} are too few to tell the model and the best baseline apart.",
    }[best.comparison]


def _advise(choice: Choice, folder: Path | str) -> str:
    """Return a sentence with the next step."""
    number, pair = ("", None) if choice.replay is None else _find_gain_from_labels(choice.replay)
    if pair is not None and pair.mean >= HARM and pair.interval is not None and pair.interval[0] > 0:
        windows = "labeled window per class raises" if number == "One" else "labeled windows per class raise"
        advice = f"record them and use autotransfer calibrate {folder}"
        return f"{number} {windows} the score to {score(pair.first.mean)}: {advice}."
    remedy = f"continue with autotransfer resume {folder} --time 10m" if choice.undelivered_stages else ""
    if choice.is_guessing or is_useless(choice):
        return f"Check labels and channels with autotransfer inspect, then {remedy or 'record more subjects'}."
    if remedy:
        return f"The time limit ended the run: {remedy}."
    if choice.replay is not None and choice.replay.transductive_method != NO_ADAPTATION:
        return f"Unlabeled windows help: predict with autotransfer predict {folder} DATA --adapt all."
    if choice.replay is not None and choice.replay.session_method != NO_ADAPTATION:
        return f"Unlabeled windows help: predict with autotransfer stream {folder} --adapt."
    if choice.best_baseline is not None and choice.best_baseline.comparison in ("too few", "worse"):
        return "Record more subjects: autotransfer plan-study estimates the gain."
    return f"Predict new recordings with autotransfer predict {folder}."


def comparison_lines(first: Path, second: Path) -> list[str]:
    """Return lines that compare two finished runs on the same recordings."""
    (data, before), (other_data, after) = (_read_finished(folder) for folder in (first, second))
    if data != other_data:
        raise UserError(f"{first} and {second} have different recordings; compare runs on the same recordings")
    if before.metric != after.metric:
        raise UserError(
            f"{first} has the metric {before.metric}, {second} {after.metric}; compare runs with the same --metric"
        )
    pair = compare_paired(after.estimate, before.estimate)
    if pair is None:
        raise UserError(f"{first} and {second} have no scored subject in common; compare runs on the same subjects")
    names = [shorten_label(folder.name or folder, 30) for folder in (first, second)]
    names = names if names[0] != names[1] else [shorten_label(folder, 60) for folder in (first, second)]
    is_same = len(before.estimate) == len(after.estimate) == pair.n
    lines = [f"{describe_metric(before)}{'' if is_same else f', the {pair.n} that both runs scored'}:"]
    for name, scores, choice in zip(names, (pair.second, pair.first), (before, after), strict=True):
        doubt = f"; no better than {choice.task.guess}" if choice.is_guessing else ""
        lines.append(f"  {name:{max(map(len, names))}}  {scores}{doubt}")
    if pair.ties == pair.n:
        return [*lines, f"The scores of the two runs are identical on {count(pair.n, 'subject')}"]
    limits = f", 95 % interval {range_words(pair.interval)}" if pair.interval else ""
    p_value = "" if pair.p is None else f", p {probability(pair.p, equals=True)}"
    lines.append(f"{names[1]} minus {names[0]}: {signed(pair.mean)}{limits}{p_value}")
    lines.append(f"of {count(pair.n, 'subject')} {pair.wins} gained, {pair.ties} tied, {pair.losses} lost")
    if pair.interval is None:
        lines.append("One subject is too few to compare runs")
    elif pair.interval[0] <= 0 <= pair.interval[1]:
        lines.append("No clear difference: the interval includes zero")
    else:
        lines.append(f"{names[1] if pair.mean > 0 else names[0]} is better on these subjects")
    return lines


def _read_finished(folder: Path) -> tuple[str, Choice]:
    """Return the fingerprint of a finished run's recordings, and its choice."""
    with closing(RunDatabase(folder / "run.sqlite", read_only=True)) as database:
        fingerprint = database.load_fact("fingerprint", str) or ""
        complete = database.load_fact("complete", bool)
    if not complete:
        raise UserError(f"{folder} is not finished; continue it with: autotransfer resume {folder}")
    return fingerprint, read_choice(folder)
