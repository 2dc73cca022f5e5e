"""Tasks: what a run predicts for each window. To add one, write a file with a `Task` and add a line to TASKS."""

from __future__ import annotations

from ..errors import UserError, shown
from .base import Metric as Metric
from .base import Task as Task
from .classification import CLASSIFICATION, CLASSIFICATION_TASK
from .regression import REGRESSION, REGRESSION_TASK

TASKS: dict[str, Task] = {CLASSIFICATION: CLASSIFICATION_TASK, REGRESSION: REGRESSION_TASK}


def task_of(target: str) -> Task:
    """Return the task of a target: 'classes', 'continuous', or 'continuous:NAME'."""
    kind, mark, column = target.partition(":")
    if kind not in TASKS or (mark and not (column and TASKS[kind].has_columns)):
        forms = [form for name, task in TASKS.items() for form in (name, f"{name}:NAME")[: 1 + task.has_columns]]
        raise UserError(
            f"target is {shown(target)}; choose from {', '.join(forms)}, where NAME is a column, or a channel whose "
            "mean over each window is predicted"
        )
    return TASKS[kind]


def label_of(metric: str) -> str:
    """Return the name of a metric in a sentence; the name itself if this version does not know the metric."""
    return next((task.metrics[metric].label for task in TASKS.values() if metric in task.metrics), metric)
