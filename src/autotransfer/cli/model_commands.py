"""The commands predict, calibrate and export."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..errors import UserError, check_choice
from .console import Quiet, Verbose, print_error, print_lines, print_progress, terminal_text
from .options import EncoderFactory, Folder, Number, Source, Text, add_cutting_options, import_encoder, read_for_model
from .outputs import check_outputs

if TYPE_CHECKING:
    import pandas as pd

    from ..models.model import Model
    from ..recordings import Raw
    from ..report.subject_scores import SubjectScores

# Beginning of the files that predict writes.
PREDICTIONS = r'window,(subject,)?prediction(,answered)?(,"?p_|,low,|\s)'
SCORES = r"subject,windows,(balanced_accuracy|r2),"


@add_cutting_options
def predict(
    folder: Folder,
    data: Source,
    cutting: dict[str, Any],
    out: Annotated[Path | None, Option(help="CSV file for the predictions; default: standard output.")] = None,
    metric: Annotated[Text, Option(help="Metric for windows with labels; default: the metric of the run.")] = None,
    scores: Annotated[
        Path | None, Option(help="CSV file for the scores and the confusion matrix of every subject.")
    ] = None,
    coverage: Annotated[
        Number, Option(help="Add sets or intervals that contain the true value with this probability, such as .9.")
    ] = None,
    abstain: Annotated[Number, Option(help="Share of windows to leave without a prediction, such as .2.")] = None,
    adapt: Annotated[str, Option(help="all: use all unlabeled windows of each subject; none: do not adapt.")] = "none",
    encoder: EncoderFactory = "eegnet",
    quiet: Quiet = False,
) -> None:
    """Predict the class or the target of new windows with a run's model.

    If the data have labels, print scores by subject and a confusion matrix to standard error.
    """
    from ..models.loading import load_model
    from ..person.predictions import read_known_target
    from ..runs.choice import describe_unfinished
    from ..runs.lock import refuse_links
    from ..training.conformal import interval_radius, least_confidence, least_probability

    check_choice("adapt", adapt, ("all", "none"))
    check_outputs(out=(out, PREDICTIONS), scores=(scores, SCORES))
    refuse_links(folder)
    model = load_model(folder, import_encoder(encoder))
    card, task = model.card, model.card.task
    if task.is_numeric and (abstain is not None or adapt != "none"):
        raise UserError("--abstain and --adapt are not available for a continuous target; leave them out")
    metric = task.metric_of_card(card.scores) if metric is None else task.metric_name(metric)
    # These functions raise if the card has no thresholds for the requested shares.
    if coverage is not None and task.is_numeric:
        interval_radius(card.intervals, coverage)
    elif coverage is not None:
        least_probability(card.thresholds, coverage)
    least_confidence(card.thresholds, abstain)
    raw = read_for_model(model, data, cutting)
    if task.is_numeric:
        raw = read_known_target(raw, card.target.partition(":")[2] or None)
    if scores is not None and raw.y is None:
        raise UserError(f"{data} has no labels y, so there are no scores; leave --scores out")
    table, subject_scores, notes = _predict(model, raw, metric, adapt, coverage, abstain, must_score=scores is not None)
    by_subject = None if subject_scores is None or scores is None else subject_scores.table()
    write_predictions(table, out, by_subject, scores, [*describe_unfinished(folder), *notes], quiet=quiet)


def write_predictions(
    table: pd.DataFrame, out: Path | None, by_subject: pd.DataFrame | None, scores: Path | None,
    notes: Iterable[str], *, quiet: bool,
) -> None:  # fmt: skip
    """Write predictions to `out` or standard output, scores by subject to `scores`, and notes to standard error."""
    from ..csv_tables import csv_text
    from ..files import write_atomically

    if out is None:
        print(terminal_text(csv_text(table, lineterminator="\n")), end="", flush=True)
    else:
        write_atomically(out, csv_text(table))
        print_lines(f"{len(table)} predictions: {out}")
    lines = list(notes)
    if scores is not None and by_subject is not None:
        write_atomically(scores, csv_text(by_subject))
        lines.append(f"scores by subject: {scores}")
    for line in [] if quiet else lines:
        print_error(line)


def _predict(
    model: Model, raw: Raw, metric: str, adapt: str, coverage: float | None, abstain: float | None, *, must_score: bool
) -> tuple[pd.DataFrame, SubjectScores | None, list[str]]:
    """Return predictions, the scores of each subject if the data have labels, and notes for the user."""
    import numpy as np

    from ..person.predictions import make_prediction_table, predict_windows
    from ..recordings.labels import find_unlabeled, select_windows
    from ..report.subject_scores import SubjectScores, count_predictions

    X = model.read(raw)
    probability = predict_windows(model, raw, None if adapt == "none" else adapt, X=X)
    table = make_prediction_table(model, raw, probability, coverage=coverage, abstain=abstain)
    notes = [count_predictions(table, model.card.task)]
    labeled_table, rows = table, np.flatnonzero(~find_unlabeled(raw))
    if len(rows) < len(X) and not model.card.task.is_numeric:
        notes.append(f"{len(X) - len(rows)} of {len(X)} windows have no label and no score")
        raw, X, probability = select_windows(raw, rows), X[rows], probability[rows]
        labeled_table = table.iloc[rows]
    try:
        if not len(X):
            raise UserError("no scores: no window has a label")
        scores = SubjectScores.from_predictions(model, raw, probability)
    except UserError as error:
        if must_score:
            raise
        return table, None, [*notes, str(error)]
    if scores is not None:
        notes += scores.describe_overlap(model, X, model.card.task.metric(metric))
        notes += scores.lines(metric)
        notes += scores.describe_decisions(labeled_table, model.card.task.metric(metric))
    return table, scores, notes


@add_cutting_options
def calibrate(
    folder: Folder,
    data: Annotated[str, Argument(metavar="DATA", help="Recordings of one subject with a few labeled windows.")],
    out: Annotated[Path, Option(help="Folder for the calibrated model, which can be given instead of RUN.")],
    cutting: dict[str, Any],
    encoder: EncoderFactory = "eegnet",
) -> None:
    """Calibrate a run's model with a few labeled windows of one subject."""
    from ..models.loading import load_classifier
    from ..person.calibration import calibrate_model, find_calibration_warnings
    from ..runs.lock import refuse_links
    from ..runs.run import holds_run

    if holds_run(out) or holds_run(out.parent):
        raise UserError(f"--out is {out}, a run whose model would be overwritten; choose another folder")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out is {out}, a file; choose a folder")
    for path in (folder, out):
        refuse_links(path)
    model = load_classifier(folder, import_encoder(encoder))
    raw = read_for_model(model, data, cutting)
    X = model.read(raw)
    calibrated_model, counts = calibrate_model(model, raw, X)
    replaced = ", which replaced an earlier model" if (out / "model" / "model.json").exists() else ""
    calibrated_model.save(out / "model")
    is_same = calibrated_model is model
    description = "model without calibration, because labels did not help" if is_same else "calibrated model"
    print_lines(f"{description}: {out / 'model'}{replaced}")
    print_lines("labeled windows: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    for warning in find_calibration_warnings(model, raw, X):
        print_error(warning)


def export(
    folder: Folder,
    format: Annotated[str, Option(help="onnx, torch (a torch.export program, .pt2) or safetensors.")],
    out: Annotated[Path | None, Option(help="Output file; default: RUN/model.onnx, .pt2 or .safetensors.")] = None,
    encoder: EncoderFactory = "eegnet",
    verbose: Verbose = False,
) -> None:
    """Write a run's model to one file that runs without this package, and check its predictions."""
    from ..export import export_model
    from ..runs.choice import describe_unfinished

    exported_file = export_model(folder, format, out, encoders=import_encoder(encoder), tell=print_progress)
    print_lines(*exported_file.lines(), *describe_unfinished(folder))
