"""Options of a run, each declared once: the command line, configuration files, `RunOptions` and
`AutoTransferClassifier` have the fields of `AskedOptions`, with their types, defaults and words.

Nothing heavy is imported here: the command line shows its help before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

# How `run --help` groups its options, the usual ones first.
USUAL, SEARCH, TRAINING, VALIDATION = "Options", "What is tried", "Training", "Validation and model"


class About(NamedTuple):
    """The help of an option, and its group in `--help`."""

    help: str
    group: str = USUAL
    metavar: str | None = None  # what stands for a value, where its type does not say it


@dataclass(kw_only=True, eq=False, repr=False)
class AskedOptions:
    """What a user may ask of a run. None: as the preset, the grid or the size of the data says."""

    time: Annotated[
        str | None,
        About(
            "30m (default), 2h: the run ends then, with the answer it has, or sooner where no more gain is expected; "
            "none: everything is trained."
        ),
    ] = None
    adaptation: Annotated[
        str | None,
        About(
            "What models may use of a new person: zero-shot, nothing (what auto usually is); online, the windows so "
            "far; transductive, all windows at once, unlabelled. none: the settings of --grid as they are."
        ),
    ] = "auto"
    device: Annotated[str, About("auto, cpu or cuda.")] = "auto"
    encoder: Annotated[
        str | Callable[..., Any],
        About(
            "eegnet, shallow, linear, templates, evoked, trees, or module:function, a factory (n_channels, n_times) -> "
            "nn.Module."
        ),
    ] = "eegnet"
    target: Annotated[
        str,
        About(
            "What is predicted: classes (default); continuous, a number for each window, such as a force; "
            "continuous:NAME, where that is a column beside the data or the mean of a channel over the window."
        ),
    ] = "classes"
    metric: Annotated[
        str | None,
        About(
            "What decides, and what people are scored with: balanced_accuracy (default of classes), f1, auc, kappa or "
            "accuracy; r2 (default of numbers), correlation or rmse."
        ),
    ] = None
    at_least: Annotated[float | None, About("The score that you need of every person: who is below it is named.")] = (
        None
    )
    grid: Annotated[
        str | Sequence[Any] | None,
        About(
            "Which penalties are tried, as a named list of settings: quick (default, cut down to few where kinds "
            "are averaged), few, uncensored, or paper, with the paper's rule. "
            "FILE.json: settings of your own.",
            SEARCH,
        ),
    ] = None
    networks: Annotated[
        str,
        About(
            "Beside the plain one, where kinds are averaged: all (default), main (two), one or none.",
            SEARCH,
        ),
    ] = "all"
    kinds: Annotated[
        str | None,
        About(
            "Signals (emg, eeg, …) or representations to try, with commas, beside features, tangent and templates, "
            "which are always tried. Default: by the data.",
            SEARCH,
        ),
    ] = None
    search: Annotated[str, About("grid; tpe: Optuna.", SEARCH)] = "grid"
    trials: Annotated[int, About("Settings to sample with --search tpe.", SEARCH)] = 40
    as_printed: Annotated[bool, About("Penalties exactly as the paper prints them, in shuffled batches.", SEARCH)] = (
        False
    )
    epochs: Annotated[int | None, About("Default: about 2,500 steps, 10 to 500 epochs; paper: 500.", TRAINING)] = None
    max_steps: Annotated[  # a classifier with `steps` would be taken for a pipeline
        int | None, About("Steps of the optimiser, where --epochs are not given; default 2500.", TRAINING)
    ] = None
    patience: Annotated[int | None, About("Stop after so many epochs without progress.", TRAINING)] = None
    batch_size: Annotated[int | None, About("Rows of a minibatch; default 128.", TRAINING)] = None
    lr: Annotated[float | None, About("Learning rate of the first epoch; default 0.001.", TRAINING)] = None
    standardize: Annotated[str | None, About("trial (default), train, online, transductive or none.", TRAINING)] = None
    align: Annotated[str | None, About("Euclidean: none (default), online or transductive.", TRAINING)] = None
    seeds: Annotated[int | None, About("How many seeds everything is trained with; default 3.", TRAINING)] = None
    folds: Annotated[
        int | str | None,
        About(
            "Groups of people that are held out in turn: a number, or all: each person alone. Default: all, and 10 for "
            "more than 20 people.",
            VALIDATION,
        ),
    ] = None
    hold_out: Annotated[
        str,
        About(
            "What is held out in turn: subject, people whom the model has not seen (default); session, new sessions of "
            "people whom it has; or the name of a column beside the data, such as a site or a device: each of its "
            "values.",
            VALIDATION,
        ),
    ] = "subject"
    rule: Annotated[
        str | None,
        About(
            "What is delivered: average, over candidates (default); published, one setting, as in the paper.",
            VALIDATION,
        ),
    ] = None
