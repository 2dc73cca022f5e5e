"""Parts of the reference that the code itself knows: filled in while the site is built.

A page says `<!-- generated: commands -->`, and what the function of that name returns takes its place.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from mkdocs.exceptions import PluginError
from typer.models import ArgumentInfo, OptionInfo

import autotransfer as at
from autotransfer.cli import app
from autotransfer.recordings import RECIPES, SETS
from autotransfer.runs.results import COLUMNS
from autotransfer.settings import METHODS, Setting

MARK = re.compile(r"<!-- generated: (\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs calls this for every page."""

    def fill(found: re.Match[str]) -> str:
        if found[1] not in PARTS:
            raise PluginError(f"nothing is generated under the name {found[1]!r}; choose from {', '.join(PARTS)}")
        return PARTS[found[1]]()

    return MARK.sub(fill, markdown)


def commands() -> str:
    """Every command with its arguments and options, from the functions that typer calls."""
    return "\n\n".join(_command(info.name or info.callback.__name__, info.callback) for info in app.registered_commands)


def _command(name: str, function: Callable[..., None]) -> str:
    hints = typing.get_type_hints(function, include_extras=True)
    usage, rows = [f"autotransfer {name}"], []
    for parameter in inspect.signature(function).parameters.values():
        kind, told = typing.get_args(hints[parameter.name])[:2]
        required = parameter.default is inspect.Parameter.empty
        if isinstance(told, ArgumentInfo):
            label = told.metavar or parameter.name.upper()
            usage.append(label)
            rows.append((f"`{label}`", told.help, "required"))
        elif isinstance(told, OptionInfo):
            flag = (told.param_decls or ["--" + parameter.name.replace("_", "-")])[0]
            value = "" if kind is bool else f" {told.metavar or parameter.name.upper()}"
            usage.append(f"{flag}{value}" if required else f"[{flag}{value}]")
            rows.append((f"`{flag}`", told.help, "required" if required else _default(parameter.default)))
        else:
            raise PluginError(f"{name} {parameter.name} has no description")
    text = [f"## {name}", inspect.cleandoc(function.__doc__ or ""), f"```text\n{_wrapped(usage)}\n```"]
    return "\n\n".join([*text, _table(("", "meaning", "default"), rows)] if rows else text)


def _wrapped(words: list[str], width: int = 88) -> str:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) >= width:
            lines.append(" " * 4)
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _default(value: object) -> str:
    return "–" if value is None or value is False else f"`{value}`"


# What each field means. A field that is missing here stops the build.
MEANING = {
    "method": "how dependence on the subject is estimated; none: the uncensored baseline",
    "mode": "`marginal` z ⟂ s, `conditional` z ⟂ s given y, `complementary`: half of z is censored, half keeps s",
    "strength": "λ, the weight of the penalty beside the classification loss; 0 is the baseline",
    "estimator": "of the scores: `ssge`, `stein`, `tikhonov`, `nu_method`",
    "length_scale": "σ of the kernel: `median` or `perplexity`, found anew in every batch, or a number",
    "regularization": "γ of the estimator; what it means differs between estimators",
    "projection": "the scores obey Stein's identity; off is the form of the paper",
    "pairs": "which pairs of subjects are compared: `all`, `bernoulli`, `clique`",
    "fraction": "with `bernoulli`: the share of pairs drawn in a step; 0.5 unless given",
    "size": "with `clique`: how many subjects are drawn in a step; 2 unless given",
    "variant": "`labelled`: the critic is told the subject; `paper`: as printed, blind to it",
    "control_rate": "β, how quickly the balance k between real and fake moves",
    "diversity": "γ, the balance that is aimed at; 0.7 for `paper`",
    "critic_lr": "learning rate of the critic",
    "critic_steps": "critic updates for each step of the encoder",
    "critic_hidden": "width of the critic's hidden layer",
    "shuffle_subjects": "the control: subjects are shuffled within each class before training sees them",
    "temporal_filters": "F1 of EEGNet",
    "spatial_depth": "spatial filters for each temporal one",
    "latent_filters": "F2 of EEGNet: channels of the latent code",
    "temporal_kernel": "samples of a temporal filter; none: half a second, within 3 and 64; `half`: half of that",
    "compress": "μ of sign(x) log(1 + μ\\|x\\|) / log(1 + μ), which EEGNet reads in place of its windows x; none: x",
    "levels": "EEGNet reads every window standardised by itself, and beside it mean and logarithm of the deviation of "
    "every channel as signals that do not move; not with `standardise` trial, which leaves no levels, and with `none` only "
    "where windows already are in units of a deviation",
    "power": "EEGNet's code also has the logarithm of the power of every spatial filter's signal, in the code's steps of "
    "time",
    "dropout": "probability that a unit is dropped",
    "max_norm": "spatial filters have norm at most 1, as in EEGNet's published code",
    "standardise": "`trial`: each channel of each trial; `channel`: with statistics of the training subjects; "
    "`subject`: with those of the person's own unlabelled trials (transductive); `running`: a new person's from their "
    "trials so far; `none`",
    "align": "[Euclidean alignment](../alignment.md) of each person's standardised trials: `running`: a new person's "
    "from their trials so far; `subject`: from all of them (transductive)",
    "warm_up": "epochs over which the strength rises linearly from 0",
    "batches": "`balanced`: enough rows of each subject in a batch to compare them; `shuffled`; `auto`: balanced with "
    "a censor, shuffled without",
    "batch_size": "rows of a minibatch",
    "lr": "learning rate of the first epoch; `schedule` says how it goes on",
    "schedule": "of the learning rates, the critic's too: `inverse_sqrt`: lr/√epoch, as published; `constant`",
    "weight_decay": "of AdamW",
    "max_epochs": "epochs; `keep` says which one's weights are kept",
    "keep": "`best`: the weights of the epoch with the lowest validation loss, as published; `last`: those of the last "
    "epoch, which no validation has picked",
    "encoder": "`eegnet`, or the name of [a network of your own](../recipes/own_encoder.md)",
    "patience": "stop after this many epochs without a better validation loss; none: never, as with `keep` last",
}


def settings() -> str:
    """The fields of Setting: what each means, who reads it, and what it is when nobody says anything."""
    every = {method: Setting(method=method) for method in METHODS}
    baseline, rows = Setting(), []
    for field in fields(Setting):
        if field.name not in MEANING:
            raise PluginError(f"the field {field.name!r} of Setting has no meaning in {__file__}")
        own = {method: getattr(setting, field.name) for method, setting in every.items()}
        readers = [f"`{method}`" for method, value in own.items() if value is not None]
        censors_only = getattr(baseline, field.name) is None and field.default is None and field.name not in UNSET
        values = sorted({_default(value) for value in own.values() if value is not None})
        if field.name == "method":
            readers, values = ["all"], ["none"]
        elif field.name in ("shuffle_subjects", "warm_up"):
            values = [_shown(field.default)]
        elif not censors_only:
            readers, values = ["all"], [_shown(field.default)]
        elif field.name in ("fraction", "size"):
            readers, values = ["`pairwise_mmd`"], ["–"]
        who = "every censor" if len(readers) == len(METHODS) else ", ".join(readers)
        rows.append((f"`{field.name}`", MEANING[field.name], who, ", ".join(values)))
    return _table(("field", "meaning", "read by", "default"), rows)


UNSET = ("temporal_kernel", "compress", "patience")  # None is a value of its own for these


def _shown(value: object) -> str:
    return "none" if value is None else f"`{value}`"


def grids() -> str:
    """The quick grid, a line each, and the size of the other."""
    rows = [
        (f"`{s.name}`", s.method or "–", s.mode or "–", "–" if s.strength is None else f"{s.strength:g}")
        for s in at.grid("quick")
    ]
    return _table(("name", "method", "mode", "strength"), rows)


def datasets() -> str:
    rows = [(f"`{name}`", known.description, known.obtained) for name, known in SETS.items()]
    return _table(("name", "what it is", "where it comes from"), rows)


def recipes() -> str:
    """The paper's data sets, which nobody may hand on: what reads the files that you have."""
    rows = [
        (f"`{prefix}FOLDER`", f"{known.description}. From: {known.source}. Terms: {known.terms}.", known.layout)
        for prefix, known in RECIPES.items()
    ]
    return _table(("source", "what it is", "expects"), rows)


COLUMN = {
    "stage": "`search` (stage one), `folds` (stage two) or `nested`",
    "setting": "short name of the setting",
    "fold": "position of the test subject",
    "validation_subject": "who validated, and chose the epoch unless `keep` is last",
    "test_subject": "who was tested",
    "seed": "of this training",
    "best_epoch": "the epoch whose weights were kept, counted from 1",
    "epochs": "how many were trained",
    "validation_score": "balanced accuracy on the validation subject with the weights that were kept",
    "test_score": "the same on the test subject",
    "swapped_best_epoch": "of the same training with validation and test subject exchanged",
    "swapped_validation_score": "on what is the test subject of this row",
    "swapped_test_score": "on what is the validation subject of this row",
    "seconds": "this training's share of the time of its population",
    "failure": "why it ended early; empty: it did not",
    "key": "identifies setting, pair of subjects and seed",
}


def columns() -> str:
    """The columns of results.csv."""
    own = [field.name for field in fields(Setting)]
    missing = set(COLUMNS) - set(COLUMN) - set(own)
    if missing:
        raise PluginError(f"the columns {sorted(missing)} of results.csv have no meaning in {__file__}")
    rows = [(f"`{name}`", COLUMN[name]) for name in COLUMNS if name in COLUMN]
    rows.append(("[setting](settings.md)", "its fields: " + ", ".join(f"`{name}`" for name in own)))
    return _table(("column", "meaning"), rows)


CHOICE = {
    "chosen": "every field of the chosen setting, and its `name`",
    "baseline": "the same of the baseline",
    "baseline_won": "whether the baseline was chosen",
    "shortlist": "names of the candidates of stage two",
    "validation_q25": "by name, of the candidates with a preparation that was kept for everybody: lower quartile over subjects of "
    "the validation scores",
    "validation_mean": "by name: their mean",
    "test_scores": "`chosen` and `baseline`: test score by subject, as published",
    "nested_test_scores": "test score by subject, of the setting chosen without that subject",
    "nested_uncensored_test_scores": "the same where only uncensored settings may be chosen; the difference is "
    "censoring's",
    "delivered_test_scores": "test score by subject of the mean over all trainings that left the subject out, by "
    "role: an ensemble, as is what a new person gets",
    "careful": "the plain network, or, of those whose mean validation score is above its own by more than two "
    "standard errors, the one with the highest lower quartile; with its `name`, in `test_scores` too. What is chosen "
    "where windows were prepared first",
    "nested_careful_test_scores": "test score by subject of the careful choice made without that subject",
    "nested_choices": "by subject: that setting",
    "preparations": "with `--prepare`: for each, how windows were prepared, `schedule` and `keep` of its training, "
    "validation scores of the uncensored network, and whether it was `kept` for the steps that follow",
    "lead": "with `--prepare`: by how many standard errors a setting had to be ahead of the plain network",
    "best_uncensored": "the uncensored candidate that validation ranks first, with its `name`; in `test_scores` too",
    "transductive": "whether the chosen setting uses all of the test subject's own unlabelled trials at once",
    "adaptation": "`none` (zero-shot), `running` or `transductive`: what it uses of a new person's unlabelled trials",
    "nested_adaptations": "by subject: the same of the nested choices",
    "nested_full_test_scores": "with `--nested full`",
    "nested_full_choices": "with `--nested full`",
}


def choice() -> str:
    return _table(("key", "meaning"), [(f"`{name}`", meaning) for name, meaning in CHOICE.items()])


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


PARTS = {
    "commands": commands, "settings": settings, "grids": grids, "datasets": datasets, "recipes": recipes,
    "columns": columns, "choice": choice,
}  # fmt: skip
