"""Tasks, such as classification. To add a task, write a file with a `Task` and add a line to TASKS."""

from __future__ import annotations

from ..errors import UserError, shown
from .base import Metric as Metric
from .base import Task as Task
from .classification import CLASSIFICATION, CLASSIFICATION_TASK
from .regression import REGRESSION, REGRESSION_TASK

TASKS: dict[str, Task] = {CLASSIFICATION: CLASSIFICATION_TASK, REGRESSION: REGRESSION_TASK}


def task_of(target: str) -> Task:
    """Return the task of a target: 'classes', 'continuous', or 'continuous:NAME'."""
    name, colon, column = target.partition(":")
    if name not in TASKS or (colon and not (column and TASKS[name].has_columns)):
        choices = [choice for key, task in TASKS.items() for choice in (key, f"{key}:NAME")[: 1 + task.has_columns]]
        raise UserError(
            f"target is {shown(target)}; choose from {', '.join(choices)}, where NAME is a column, or a channel whose "
            "mean over each window is predicted"
        )
    return TASKS[name]


def label_of(metric: str) -> str:
    """Return the label of a metric for sentences, or its name if the metric is unknown."""
    return next((task.metrics[metric].label for task in TASKS.values() if metric in task.metrics), metric)
