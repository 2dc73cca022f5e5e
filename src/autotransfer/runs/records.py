"""What the ledger keeps of an outcome: scores and history as JSON, weights as safetensors."""

from __future__ import annotations

from typing import Any

from safetensors.torch import save

from ..jobs import Outcome


def record_of(outcome: Outcome) -> dict[str, Any]:
    """What the ledger keeps of an outcome as JSON; `swapped` holds the twin's."""
    record = {
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "validation_score": outcome.validation_score,
        "test_score": outcome.test_score,
        "validation_confusion": outcome.validation_confusion.tolist(),
        "test_confusion": outcome.test_confusion.tolist(),
        "history": outcome.history,
        "seconds": outcome.seconds,
        "population": outcome.population,
        "failure": outcome.failure,
    }
    if outcome.swapped is not None:
        record["swapped"] = record_of(outcome.swapped)
    return record


def tensors_of(outcome: Outcome) -> bytes:
    """Weights of both snapshots and of the last epoch, as safetensors."""
    states = {"best": outcome.state, "final": outcome.final_state}
    if outcome.swapped is not None:
        states["swapped"] = outcome.swapped.state
    return save({f"{kind}.{name}": t.contiguous() for kind, state in states.items() for name, t in state.items()})
