"""The commands predict, calibrate and export."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..errors import UserError, check_choice
from .console import Quiet, VerboseExport, print_error, print_lines, print_progress, terminal_text
from .options import EncoderFactory, Folder, Source, add_cutting_options, import_encoder, read_for_model
from .outputs import check_outputs

if TYPE_CHECKING:
    import pandas as pd

    from ..models.model import Model
    from ..recordings import Raw
    from ..report.subject_scores import SubjectScores


@add_cutting_options
def predict(
    folder: Folder,
    data: Source,
    cutting: dict[str, Any],
    out: Annotated[Path | None, Option(help="CSV file for the predictions; default: standard output.")] = None,
    metric: Annotated[
        str | None, Option(help="Metric for windows with labels; default: the metric of the run.")
    ] = None,
    scores: Annotated[
        Path | None, Option(help="CSV file for the scores and the confusion matrix of every subject.")
    ] = None,
    coverage: Annotated[
        float | None, Option(help="Add prediction sets that contain the true class this often, such as .9.")
    ] = None,
    abstain: Annotated[float | None, Option(help="Abstain on about this share of windows, such as .2.")] = None,
    adapt: Annotated[str, Option(help="all: adapt to all unlabeled windows of each subject; none (default).")] = "none",
    encoder: EncoderFactory = "eegnet",
    quiet: Quiet = False,
) -> None:
    """Predict the class or the target of new windows with a run's model.

    If the data have labels, print scores by subject and a confusion matrix to standard error.
    """
    from ..models.loading import load_model
    from ..person.predictions import read_known_target
    from ..runs.choice import describe_unfinished
    from ..training.conformal import interval_radius, least_confidence, least_probability

    check_choice("adapt", adapt, ("all", "none"))
    check_outputs(data, folder, out=out, scores=scores)
    saved = load_model(folder, import_encoder(encoder))
    card, task = saved.card, saved.card.task
    if task.is_numeric and (abstain is not None or adapt != "none"):
        raise UserError("the model predicts a continuous target, which has no --abstain and --adapt; leave them out")
    deciding = task.metric_of_card(card.scores) if metric is None else task.metric_name(metric)
    if coverage is not None and task.is_numeric:
        interval_radius(card.intervals, coverage)
    elif coverage is not None:
        least_probability(card.thresholds, coverage)
    least_confidence(card.thresholds, abstain)
    raw = read_for_model(saved, data, cutting)
    if task.is_numeric:
        raw = read_known_target(raw, card.target.partition(":")[2] or None)
    if scores is not None and raw.y is None:
        raise UserError(f"{data} has no labels y, so there are no scores; leave --scores out")
    table, scored, notes = _predict(saved, raw, deciding, adapt, coverage, abstain, must_score=scores is not None)
    by_subject = None if scored is None or scores is None else scored.table()
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
    written = []
    if scores is not None and by_subject is not None:
        write_atomically(scores, csv_text(by_subject))
        written = [f"scores by subject: {scores}"]
    if not quiet:
        for line in (*notes, *written):
            print_error(line)


def _predict(
    model: Model, raw: Raw, metric: str, adapt: str, coverage: float | None, abstain: float | None, *, must_score: bool
) -> tuple[pd.DataFrame, SubjectScores | None, list[str]]:
    """Return a row for each window, the scores of each subject if labels are known, and notes."""
    import numpy as np

    from ..person.predictions import make_prediction_table, predict_windows
    from ..recordings.labels import find_unlabeled, select_windows
    from ..report.subject_scores import SubjectScores, count_predictions

    X = model.read(raw)
    probability = predict_windows(model, raw, None if adapt == "none" else adapt, X=X)
    table = make_prediction_table(model, raw, probability, coverage=coverage, abstain=abstain)
    notes = [count_predictions(table, model.card.task)]
    labeled, rows = table, np.flatnonzero(~find_unlabeled(raw))
    if len(rows) < len(X) and not model.card.task.is_numeric:
        notes.append(f"{len(X) - len(rows)} of {len(X)} windows have no label and no score")
        raw, X, probability, labeled = select_windows(raw, rows), X[rows], probability[rows], table.iloc[rows]
    try:
        if not len(X):
            raise UserError("no scores: no window has a label")
        scored = SubjectScores.from_predictions(model, raw, probability)
    except UserError as error:
        if must_score:
            raise
        return table, None, [*notes, str(error)]
    if scored is not None:
        notes += scored.describe_seen(model, X, model.card.task.metric(metric))
        notes += scored.lines(metric)
        notes += scored.describe_decisions(labeled, model.card.task.metric(metric))
    return table, scored, notes


@add_cutting_options
def calibrate(
    folder: Folder,
    data: Annotated[str, Argument(metavar="DATA", help="Recordings of one subject with a few labeled windows.")],
    out: Annotated[Path, Option(help="Folder for the calibrated model, for predict, export and stream.")],
    cutting: dict[str, Any],
    encoder: EncoderFactory = "eegnet",
) -> None:
    """Calibrate a run's model with a few labeled windows of one subject."""
    from ..models.loading import load_classifier
    from ..person.calibration import calibrate_model, find_calibration_warnings
    from ..recordings.container import check_sfreq
    from ..runs.lock import refuse_links
    from ..runs.run import holds_run

    if holds_run(out):
        raise UserError(f"--out is {out}, a run whose model would be overwritten; choose another folder")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out is {out}, a file; choose a folder")
    for known in (folder, out):
        refuse_links(known)
    saved = load_classifier(folder, import_encoder(encoder))
    raw = read_for_model(saved, data, cutting)
    X = saved.check(raw.X, raw.channels, check_sfreq(raw.sfreq))
    made, counts = calibrate_model(saved, raw, X)
    replaced = (out / "model" / "model.json").exists()
    made.save(out / "model")
    instead = ", which replaced an earlier model" if replaced else ""
    what = "not calibrated, because labels did not help" if made is saved else "calibrated model"
    print_lines(f"{what}: {out / 'model'}{instead}")
    print_lines("labeled windows: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    for warning in find_calibration_warnings(saved, raw, X):
        print_error(warning)


def export(
    folder: Folder,
    format: Annotated[str, Option(help="onnx, torch (a torch.export program, .pt2) or safetensors.")],
    out: Annotated[Path | None, Option(help="Output file; default: RUN/model.onnx, .pt2 or .safetensors.")] = None,
    encoder: EncoderFactory = "eegnet",
    verbose: VerboseExport = False,
) -> None:
    """Write a run's model to one file that runs without this package, and check its predictions."""
    from ..export import export_model
    from ..runs.choice import describe_unfinished

    written = export_model(folder, format, out, encoders=import_encoder(encoder), tell=print_progress)
    print_lines(*written.lines(), *describe_unfinished(folder))
