"""Generate parts of the reference from the code when the site is built.

The result of the function `commands` replaces `<!-- generated: commands -->` in a page. This is an extension of
Markdown, not of mkdocs, so that other builders run it too.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from typer import Context
from typer.models import ArgumentInfo, OptionInfo

import autotransfer as at
from autotransfer.augment import AUGMENTATIONS
from autotransfer.censoring import CENSORS
from autotransfer.cli import app
from autotransfer.model.encoders import ENCODERS
from autotransfer.person.adaptation import ADAPTATION_METHODS
from autotransfer.preprocessing import TRANSFORMS
from autotransfer.recordings.sources import SETS
from autotransfer.runs.choice import Choice, EnsembleWeights, PredictionSetScores, ReplayResult
from autotransfer.runs.results import COLUMNS
from autotransfer.settings import Penalty, Training, field_names

MARK = re.compile(r"<!-- generated: (\w+) -->")
COMMENT = re.compile(r"^    (\w+): [^#\n]*?  # (.*)$", re.MULTILINE)  # next to a field of a dataclass


class Generated(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Filler(md), "generated", 40)  # before comments are set aside


class Filler(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return MARK.sub(_part, "\n".join(lines)).split("\n")


def makeExtension(**options: Any) -> Generated:
    return Generated(**options)


def _part(found: re.Match[str]) -> str:
    if found[1] not in PARTS:
        raise ValueError(f"unknown generated part {found[1]!r}; choose from {', '.join(PARTS)}")
    return PARTS[found[1]]()


def commands() -> str:
    """Return every command with its arguments and options, from the functions that typer calls."""
    named = ((info.name or info.callback.__name__.replace("_", "-"), info.callback) for info in app.registered_commands)
    return "\n\n".join(_command(name, function) for name, function in named)


def _command(name: str, function: Callable[..., None]) -> str:
    hints = typing.get_type_hints(function, include_extras=True)
    usage, rows, rare = [f"autotransfer {name}"], [], []
    for parameter in inspect.signature(function).parameters.values():
        if hints[parameter.name] is Context:  # passed by typer
            continue
        kind, info = typing.get_args(hints[parameter.name])[:2]
        required = parameter.default is inspect.Parameter.empty
        if isinstance(info, ArgumentInfo):
            label = info.metavar or parameter.name.upper()
            usage.append(label)
            rows.append((f"`{label}`", info.help, "required"))
        elif isinstance(info, OptionInfo):
            named = [text for text in (info.default, *(info.param_decls or ())) if str(text).startswith("-")]
            flag = str(named[0]) if named else "--" + parameter.name.replace("_", "-")
            if info.hidden:
                rare.append((f"`{flag}`", info.help))
                continue
            value = "" if kind is bool else f" {info.metavar or parameter.name.upper()}"
            usage.append(f"{flag}{value}" if required else f"[{flag}{value}]")
            default = info.show_default if isinstance(info.show_default, str) else _default(parameter.default)
            rows.append((f"`{flag}`", info.help, "required" if required else default))
        else:
            raise ValueError(f"{name} {parameter.name} has no description")
    text = [f"## {name}", inspect.cleandoc(function.__doc__ or ""), f"```text\n{_wrapped(usage)}\n```"]
    text += [_table(("", "meaning", "default"), rows)] if rows else []
    text += ["`--help` does not show these options:", _table(("", "meaning"), rare)] if rare else []
    return "\n\n".join(text)


def _wrapped(words: list[str], width: int = 88) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= width:
            lines.append(" " * 4)
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _default(value: object) -> str:
    return "–" if value is None or value is False else f"`{value}`"


# Meanings of fields that need more words than the comment in the code.
MEANING = {
    "method": "how dependence on the subject is estimated; none: no penalty",
    "mode": "`marginal` z ⟂ s, `conditional` z ⟂ s given y, `complementary`: half of z is censored, half keeps s",
    "strength": "λ, the weight of the penalty relative to the classification loss; 0: no penalty",
    "estimator": "estimator of the scores: `ssge`, `stein`, `tikhonov`, `nu_method`",
    "length_scale": "σ of the kernel: `median` or `perplexity`, estimated in every batch, or a number",
    "regularization": "γ of the estimator ([meaning](../method.md#scores)); none: 0.001 for `stein`, 0.01 for all "
    "others",
    "projection": "whether the scores obey Stein's identity; the paper's do not",
    "pairs": "which pairs of subjects are compared: `all`, `bernoulli`, `clique`",
    "fraction": "with `bernoulli`: the share of pairs drawn in a step; 0.5 unless given",
    "size": "with `clique`: how many subjects are drawn in a step; 2 unless given",
    "variant": "`labelled`: the critic sees the subject; `paper`: as printed, it does not",
    "control_rate": "β, how quickly the balance k between real and fake moves",
    "diversity": "γ, the target balance; none: 1 for `labelled`, 0.7 for `paper`",
    "critic_lr": "learning rate of the critic",
    "critic_steps": "critic updates for each step of the encoder",
    "critic_hidden": "width of the critic's hidden layer",
    "shuffle_subjects": "control: subjects are shuffled within each class before training",
    "temporal_filters": "F1 of EEGNet",
    "spatial_depth": "spatial filters for each temporal filter",
    "latent_filters": "F2 of EEGNet: channels of the latent features",
    "temporal_kernel": "samples of a temporal filter; none: half a second for `eegnet`, a fifth for `shallow`, within "
    "3 and 64",
    "log_power": "append the log power of every spatial filter's signal to the latent features",
    "dropout": "probability that a unit is dropped",
    "standardize": "`trial`: each channel of each window; `train`: with statistics of the training subjects; `online`: "
    "of the subject's windows so far; `transductive`: of all unlabeled windows of the subject; `none`",
    "align": "[Euclidean alignment](../alignment.md) of each subject's standardized windows: `online`: from the "
    "windows of the subject so far; `transductive`: from all of them; `none`",
    "append_scale": "standardize every window by itself and append mean and log standard deviation of each channel as "
    "constant channels; not with `standardize` trial, which removes them",
    "delays": "number of copies of every channel, each `lag` samples later than the one before; 1: no delayed copies",
    "lag": "samples between two delayed copies",
    "represent": "replace the window by features for a linear model; `features`: means, log power in bands and log "
    "deviations of each channel; `tangent`: log deviations and the matrix logarithm of the correlations; "
    "`hudgins`, `tdar`, `ls4`, `ls9`, `tdpsd`: features of muscle activity, as LibEMG groups them; "
    "`rhythms`: canonical correlations with sines; `bands`, `fine_bands`: log amplitudes in frequency bands; "
    "`band_tangent`: tangent vectors of three bands; `statistics`: of slow signals; `beats`: shapes of heartbeats; "
    "`minirocket`: random kernels; `none`",
    "center": "subtract the subject's mean of the representation: `online`: over the windows so far; "
    "`transductive`: over all windows; `none`",
    "shrinkage": "share of the identity in the classes' common covariance, in [0, 1]; `auto`: by Ledoit and Wolf",
    "trees": "number of trees",
    "template_filters": "spatial filters of xDAWN for each class; 32 in all at most, and not more than channels",
    "mixup": "mix every training window with a window of another subject of its class, from the same minibatch; the "
    "share of that window is uniform between 0 and this number, at most .5",
    "amplitude": "multiply every channel of a training window by exp(u), u uniform in ± this number",
    "channel_mask": "set each channel of a training window to zero with this probability",
    "warm_up": "epochs over which the strength rises linearly from 0",
    "batches": "`balanced`: enough windows of each subject in a batch to compare subjects; `shuffled`; `auto`: balanced with "
    "a penalty, shuffled without",
    "batch_size": "windows of a minibatch",
    "lr": "learning rate of the first epoch; `schedule` determines the others",
    "schedule": "schedule of the learning rates, also of the critic: `inverse_sqrt`: lr/√epoch, as published; "
    "`constant`",
    "weight_decay": "weight decay of AdamW",
    "max_epochs": "number of epochs",
    "checkpoint": "which weights are kept: `best`: those of the epoch with the lowest validation loss, as published; "
    "`last`: those of the last epoch; `averaged`: [the mean](../method.md#averaged-weights) over the "
    "last half of the steps",
    "encoder": "{encoders}, or the name of [a network of your own](../recipes/own_encoder.md)",
    "patience": "stop after this many epochs without a lower validation loss; none: never, as with `checkpoint` last "
    "and averaged",
}


def settings() -> str:
    """Return every keyword of Setting with its meaning and default, from the registries."""
    penalty = {f.name: _shown(f.default) for f in fields(Penalty) if f.name != "options"} | {"method": "none"}
    rows = [_row(Penalty, name, default) for name, default in penalty.items()]
    parts = ["## Penalty", "For all methods:", _table(HEADS, rows)]
    for name, method in CENSORS.items():
        own = [_row(method.Options, f.name, _shown(f.default)) for f in fields(method.Options)]
        parts += [f"For `{name}` ({method.label}):", _table(HEADS, own)] if own else []
    parts += ["## Encoder", _table(HEADS, [_row(object, "encoder", "`eegnet`")])]
    for name, encoder in ENCODERS.items():
        own = [_row(encoder, f.name, _shown(f.default)) for f in fields(encoder)]
        parts += [f"For `{name}`:", _table(HEADS, own)] if own else []
    parts += ["## Preprocessing", "In this order:", _table(HEADS, list(_chain(TRANSFORMS)))]
    parts += ["## Augmentation", "Training windows only, in this order:", _table(HEADS, list(_chain(AUGMENTATIONS)))]
    training = [_row(Training, f.name, _shown(f.default)) for f in fields(Training)]
    text = "\n\n".join([*parts, "## Training", _table(HEADS, training)])
    missing = [name for name in field_names() if f"`{name}`" not in text]
    if missing:
        raise ValueError(f"the fields {missing} of Setting are in no table")
    return text


HEADS = ("field", "meaning", "default")


def _chain(registry: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Yield a row for each transform or augmentation, and for each of its further fields."""
    for name, kind in registry.items():
        first, *others = fields(kind)
        meaning = MEANING.get(name) or _comment(kind, first.name) or _first_sentence(inspect.getmodule(kind))
        yield f"`{name}`", meaning, _shown(getattr(kind, "default", None))
        for other in others:
            yield _row(kind, other.name, _shown(other.default))


def _row(kind: type, name: str, default: str) -> tuple[str, str, str]:
    meaning = MEANING.get(name) or _comment(kind, name)
    if not meaning:
        raise ValueError(f"the field {name!r} of {kind.__name__} has no comment, and no meaning in {__file__}")
    return f"`{name}`", meaning.format(encoders=", ".join(f"`{one}`" for one in ENCODERS)), default


def _comment(kind: type, name: str) -> str:
    """Return the comment next to a field."""
    for owner in kind.__mro__[:-1]:
        if name in inspect.get_annotations(owner):
            return dict(COMMENT.findall(inspect.getsource(owner))).get(name, "")
    return ""


def _first_sentence(module: Any) -> str:
    return " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())


def _shown(value: object) -> str:
    return "none" if value is None else "–" if value is MISSING else f"`{value}`"


def grids() -> str:
    """Return the quick grid, one line for each setting."""
    rows = [
        (
            f"`{s.name_relative_to(at.Setting())}`",
            s.method or "–",
            s.mode or "–",
            "–" if s.strength is None else f"{s.strength:g}",
        )
        for s in at.grid("quick")
    ]
    return _table(("name", "method", "mode", "strength"), rows)


def datasets() -> str:
    rows = [(f"`{name}`", known.description, known.origin) for name, known in SETS.items()]
    return _table(("name", "what it is", "where it comes from"), rows)


COLUMN = {
    "stage": "`search` (stage one), `folds` (stage two), `sessions` (for the [online ensemble](../online.md), no "
    "candidates) or `nested`",
    "setting": "short name of the setting",
    "fold": "position of the test subject",
    "validation_subject": "the validation subject; its loss selects the epoch if `checkpoint` is best",
    "test_subject": "the test subject",
    "seed": "seed of the fit",
    "best_epoch": "the epoch whose weights were kept, counted from 1",
    "epochs": "number of epochs trained",
    "validation_score": "balanced accuracy on the validation subject with the weights that were kept",
    "test_score": "balanced accuracy on the test subject with these weights",
    "swapped_best_epoch": "best epoch of the same fit with validation and test subject exchanged",
    "swapped_validation_score": "its validation score, on the test subject of this row",
    "swapped_test_score": "its test score, on the validation subject of this row",
    "seconds": "the share of the fit in the time of its population",
    "failure": "reason of a failed fit; otherwise empty",
    "key": "identifies setting, pair of subjects and seed",
}


def columns() -> str:
    """Return the columns of results.csv."""
    own = field_names()
    missing = set(COLUMNS) - set(COLUMN) - set(own)
    if missing:
        raise ValueError(f"the columns {sorted(missing)} of results.csv have no meaning in {__file__}")
    rows = [(f"`{name}`", COLUMN[name]) for name in COLUMNS if name in COLUMN]
    rows.append(("[setting](settings.md)", "its fields: " + ", ".join(f"`{name}`" for name in own)))
    return _table(("column", "meaning"), rows)


CHOICE = {
    "chosen": "the best single candidate, by the mean of validation scores over subjects, with the lower quartile for "
    "near-ties; with `--rule published` by the lower quartile. Its `name` and every field",
    "paper_network": "EEGNet (paper), with the same keys",
    "best_uncensored": "the candidate without a penalty that has the best validation scores",
    "shortlist": "the settings that were trained on every fold, each with its `name`",
    "validation_q25": "by name of a candidate: lower quartile over subjects of the validation scores",
    "validation_mean": "by name of a candidate: mean over subjects of the validation scores",
    "test_scores": "test score by subject of single networks, as published, for `chosen`, `paper_network` "
    "and `best_uncensored`",
    "nested_test_scores": "test score by subject of the delivered model, with weights, or a setting, selected without "
    "the subject's scores",
    "nested_choices": "by subject: the best single candidate, selected without the subject's scores",
    "nested_uncensored_choices": "as above, among candidates without a penalty",
    "alternatives": "test score by subject of other models: `best_single`, the best single "
    "candidate; `equal_weights` for all candidates; `uncensored`, no candidate with a penalty; `paper_network`, an "
    "ensemble of these networks",
    "adaptation": "`none` (zero-shot), `online` or `transductive`: use of a new subject's unlabeled "
    "windows by the delivered model",
    "ensemble": "the delivered ensemble, see below; null with `--rule published`, which delivers the chosen setting",
    "calibration": "predictions for all test subjects, in bins of similar confidence: `confidence`, `accuracy` and "
    "`share` of the windows of each bin, expected calibration `error`, and `error_before` without the temperature",
    "intervals": "intervals of a predicted number on held-out subjects; null for classes, and with too few subjects",
    "replay": "replay of held-out subjects, see below; null without one",
    "prediction_sets": "prediction sets and abstention on held-out subjects, see below; null with too few subjects",
    "unscored_subjects": "subjects without a score, because they have windows of one class only",
    "target": "the target, as in `--target`",
    "metric": "scikit-learn's name of the metric of all scores except `other_metrics`",
    "chance": "the score of guessing",
    "guessing": "the score of guessing by subject, if it differs between subjects",
    "other_metrics": "by metric: score by subject of the delivered model, as `nested_test_scores`",
    "baselines": "by name of a baseline: score by subject, on the same folds",
    "undelivered_stages": "stages that were skipped because of `--time`",
    "stages": "stages behind the result, in order: `name`, `number` in plan.json, `seconds` since the run began, "
    "`scores` by subject after the stage, their mean `score` and its 95 % `interval`; empty for a run without stages",
    "end_reason": "why the run ended; null: it continues, or has no stages",
    "skipped_baselines": "by name of a baseline: why it has no scores",
    "confusions": "by subject: counts of true × predicted class of the delivered model, nested",
    "reliability": "by subject: mean `confidence`, `accuracy` and expected calibration `error`, nested",
    "fingerprint": "digest of the recordings when the scores were computed",
    "hold_out": "the held-out unit: subject, session or the name of a column; scores are by subject",
    "at_least": "the value of `--at-least`, or null",
    "headline": "the headline of the report",
    "best_baseline": "the baseline with the highest mean: `name`, `mean`, `n_subjects`, mean `difference` of the "
    "delivered model to it and its 95 % `interval`",
    "next_subject": "prediction interval for one more subject: `low`, `high`, its `level`, the number of subjects "
    "`n_subjects`, and assumption `assumes` (`nothing` or a `normal` distribution)",
}


def choice() -> str:
    return _keys(Choice, CHOICE)


ENSEMBLE = {
    "candidates": "the candidates, sorted by weight: `name`, `family` (`eegnet`, `shallow`, `features`, `tangent`, "
    "`templates` or the name of your encoder), `share` of the weights, and `weight`: the share over the temperature, "
    "which multiplies the candidate's log-probabilities",
    "nested": "by subject: the weight of each candidate, fitted without the subject",
    "nested_uncensored": "as above, among candidates without a penalty; empty if all are without one",
}


REPLAY = {
    "zero_shot": "by the order of the windows (`recorded`, `balanced`, `one-sided`, `one class first`): score by "
    "subject of the model without adaptation, `nested_test_scores` in the order of recording",
    "adapted": "as `zero_shot`, with adaptation by the method that is selected on the other subjects",
    "methods": f"by adaptation method ({', '.join(f'`{name}`' for name in ADAPTATION_METHODS)}), then as above",
    "before_calibration": "by the number of labeled windows of each class: score by subject of the delivered model on "
    "all windows without a label",
    "calibrated": "as `before_calibration`, of the calibrated model",
    "personal": "as `before_calibration`, of a linear classifier that is trained on the labels alone",
    "adaptation_method": "the adaptation method of the delivered model; `none`: it does not adapt",
    "calibrates_with": "numbers of labels from which the delivered model is calibrated",
    "trust": "by the number of labels: weight of the correction, and factor of the log-probabilities",
    "online": "as `zero_shot`, of the [online ensemble](../online.md) with the rule that is selected on the other "
    "subjects; empty, as all below, without an online ensemble",
    "all_windows": "score by subject of the online ensemble with all windows of the subject at once",
    "rule": "rule of the delivered online ensemble: `kind`, `prior_windows` and `forgetting`",
    "online_session": "whether a session of the delivered model uses the online ensemble",
    "online_all_windows": 'whether `adapt="all"` uses it',
}


def replay() -> str:
    """Describe the keys under `replay` in choice.json."""
    return _keys(ReplayResult, REPLAY)


def ensemble() -> str:
    """Describe the keys under `ensemble` in choice.json."""
    return _keys(EnsembleWeights, ENSEMBLE)


PREDICTION_SETS = {
    "thresholds": "thresholds of the delivered model, from all subjects: `n_subjects`, their number; `sets`, the "
    "minimum probability of a class in a set for coverages of 0.01 … 0.99; `confidences`, the confidence below which "
    "shares of 0.01 … 0.99 of a subject's windows lie",
    "coverage": "by requested coverage: share by subject of windows whose set holds the true class",
    "set_size": "by requested coverage: mean number of classes in a set",
    "answered_share": "by requested share of unanswered windows: share by subject that is answered",
    "answered_accuracy": "by requested share of unanswered windows: accuracy by subject on answered windows",
}


def prediction_sets() -> str:
    """Describe the keys under `prediction_sets` in choice.json."""
    return _keys(PredictionSetScores, PREDICTION_SETS)


def _keys(kind: type, meanings: dict[str, str]) -> str:
    names = [field.name for field in fields(kind)]
    if set(names) != set(meanings):
        raise ValueError(f"{__file__} and {kind.__name__} differ in {sorted(set(names) ^ set(meanings))}")
    return _table(("key", "meaning"), [(f"`{name}`", meanings[name]) for name in names])


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


PARTS = {
    "commands": commands, "settings": settings, "grids": grids, "datasets": datasets,
    "columns": columns, "choice": choice, "ensemble": ensemble, "replay": replay, "prediction_sets": prediction_sets,
}  # fmt: skip
