"""Coverage of the 95 % interval for a mean over subjects, by simulation.

Protocol of the comparison of methods, fixed before it was run:

- Four shapes of scores of a subject: `normal` (mean .70, deviation .10); `ceiling`, skewed to the left below 1
  (beta 9, 1); `floor`, skewed to the right above chance (.5 + .5 beta 1, 6); `failures`, one subject in eight near
  chance (.52) and the others near .88, with deviation .04 each. Differences have the same shapes, shifted.
- 5, 8, 12, 20 and 36 subjects, 4,000 studies for each shape and number, the same studies for every method.
- Methods: `percentile` (expanded percentile bootstrap, in use until then), `t` (Student), `logit` (Student's t for
  the mean on the logit scale), `johnson` (t with Johnson's correction for skewness), `hall` (Hall's cubic
  transformation with quantiles of t), `bca` (bias-corrected and accelerated bootstrap with expanded percentiles) and
  `bootstrap-t`; 1,000 resamples.
- A method is left out if its mean length is more than twice that of `t` in any cell, because such an interval says
  nothing to a reader. Of the others, those whose smallest coverage over the 20 cells is within .01 of the highest are
  equal, and the one with the smallest geometric mean length is used.
- AutoTransfer and the benchmarks use the same function, `mean_interval`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]

NUMBERS = (5, 8, 12, 20, 36)
SHAPES: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], Floats], float]] = {  # draws, mean
    "normal": (lambda draw, size: draw.normal(0.7, 0.1, size), 0.7),
    "ceiling": (lambda draw, size: draw.beta(9, 1, size), 0.9),
    "floor": (lambda draw, size: 0.5 + 0.5 * draw.beta(1, 6, size), 0.5 + 0.5 / 7),
    "failures": (lambda draw, size: draw.normal(np.where(draw.random(size) < 1 / 8, 0.52, 0.88), 0.04), 0.835),
}
