"""What mistakes cost: a matrix in a file, as a metric.

Rows are true classes, columns predicted ones. The score is the share of the worst possible cost that was avoided,

    1 − Σ_i cost[y_i, ŷ_i] / Σ_i max_k cost[y_i, k]

1 where nothing was paid, 0 where every window had the costliest answer. As the name of a metric a matrix is its JSON
after "cost:", so that a run is complete without the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, one_line, shown
from ..files import read_plain

PREFIX = "cost:"
FORMAT = 'write {"classes": ["left", "right"], "costs": [[0, 1], [5, 0]]}, rows true and columns predicted'
LARGEST = 1e12
Floats = NDArray[np.float64]


def read_costs(path: Path) -> str:
    """The name of the metric that a file describes: a matrix in the order of the classes, or with names of classes."""
    try:
        values = json.loads(read_plain(path).decode())
    except FileNotFoundError:
        raise UserError(f"there is no file {path}; --metric takes a name or a .json file of costs") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({one_line(error)}); {FORMAT}") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); give another file of costs") from None
    name = PREFIX + json.dumps(values, separators=(",", ":"))
    parse(name)
    return name


@lru_cache(64)
def parse(name: str) -> tuple[tuple[str, ...] | None, Floats]:
    """Names of classes, where they are given, and the matrix (C, C)."""
    try:
        values: Any = json.loads(name.removeprefix(PREFIX))
    except (ValueError, RecursionError):
        raise UserError(f"the metric {shown(name)} is no matrix of costs; {FORMAT}") from None
    classes = None
    if isinstance(values, dict):
        if set(values) != {"classes", "costs"} or not isinstance(values["classes"], list):
            raise UserError(f"costs have the entries {shown(sorted(values))}; {FORMAT}")
        classes, values = tuple(map(str, values["classes"])), values["costs"]
    rows = values if isinstance(values, list) and all(isinstance(row, list) for row in values) else [[]]
    numbers = [cost for row in rows for cost in row]
    square = len(rows) >= 2 and all(len(row) == len(rows) for row in rows)
    plain = all(isinstance(cost, int | float) and not isinstance(cost, bool) for cost in numbers)
    if not square or not plain or (classes is not None and (len(set(classes)), len(classes)) != (len(rows),) * 2):
        raise UserError(f"costs are {shown(values)}; they must be a square table of numbers, a row a class: {FORMAT}")
    if not all(0 <= cost <= LARGEST for cost in numbers):  # no NaN either; an integer may be too large for a float
        raise UserError(f"costs are {shown(values)}; each must be a number of at least 0, and at most {LARGEST:g}")
    costs = np.array(rows, dtype=np.float64)
    if costs.diagonal().any():
        raise UserError(f"costs are {shown(values)}; what is right costs nothing: the diagonal must be 0")
    if not (costs.max(1) > 0).all():
        raise UserError(f"costs are {shown(values)}; in every row some mistake must cost more than 0")
    return classes, costs


def for_classes(name: str, classes: Sequence[object]) -> str:
    """Return the metric with its matrix in the order of these classes; UserError where it is of others. Metrics that
    are no costs stay as they are."""
    if not name.startswith(PREFIX):
        return name
    known, (named, costs) = list(map(str, classes)), parse(name)
    if named is not None and set(named) != set(known):
        raise UserError(f"costs are of the classes {', '.join(named)}; the recordings have {', '.join(known)}")
    check_size(costs, len(known))
    order = list(range(len(known))) if named is None else [named.index(label) for label in known]
    return PREFIX + json.dumps(costs[np.ix_(order, order)].tolist(), separators=(",", ":"))


def check_size(costs: Floats, n_classes: int) -> None:
    if len(costs) != n_classes:
        raise UserError(
            f"costs are of {len(costs)} classes, and there are {n_classes}; give a row and a column of each"
        )


def avoided(costs: Floats, y: NDArray[np.int64], predicted: NDArray[np.int64], weight: Any = None) -> float:
    """The share of the worst cost that was avoided: y, predicted (N,)."""
    paid, worst = costs[y, predicted], costs[y].max(1)
    return float(1 - np.average(paid, weights=weight) / np.average(worst, weights=weight))


def guessed(costs: Floats, shares: Floats) -> float:
    """The share that the best constant answer avoids, in the mean over people with shares (P, C) of the classes."""
    return float((1 - shares @ costs / (shares @ costs.max(1))[:, None]).mean(0).max())
