"""Training steps by Triton kernels against plain ones: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.steps import make_jobs, make_noise

import autotransfer as at
from autotransfer import gpu
from autotransfer.gpu import elementwise
from autotransfer.training.trainer import Trainer
from autotransfer.training.windows import Windows
from triton_device import DEVICE

SMALL = {"batch_size": 4, "temporal_kernel": 7}
EEGNET = SMALL | {"temporal_filters": 2, "latent_filters": 3}
RECOMMENDED = {"log_power": True, "standardize": "train", "append_scale": True}


@pytest.mark.parametrize(
    ("alone", "options"),
    [
        (False, EEGNET | {"log_power": True}),
        (True, EEGNET),
        (False, EEGNET | RECOMMENDED),
        (True, EEGNET | RECOMMENDED | {"channel_mask": 0.5}),
        (False, SMALL | {"encoder": "shallow", "power_filters": 3, "standardize": "train"}),
    ],
    ids=["log power", "plain", "levels", "levels, masked", "shallow"],
)
def test_an_epoch_by_kernels_is_an_epoch(monkeypatch: pytest.MonkeyPatch, alone: bool, options: dict[str, Any]) -> None:
    recordings = make_noise(5, 36, 4, subjects=3, classes=2, steps=2)
    setting = at.Setting(**options)
    jobs = make_jobs(recordings, setting, 4, alone=alone)

    def trained(*, kernels: bool) -> Trainer:
        for module, name in ((gpu, "is_available"), (elementwise, "is_available")):
            monkeypatch.setattr(module, name, lambda tensor, *_: kernels and tensor.device.type == DEVICE)
        windows = Windows(recordings, setting.preprocessing, 7, device=torch.device(DEVICE), dtype=torch.float32)
        trainer = Trainer(jobs, windows)
        trainer.train_epoch()
        trainer.evaluate()
        assert (trainer.groups.shared_group is None) == alone
        assert (trainer.prepared.standardized is not None) == ("append_scale" in options)
        return trainer

    plain, quick = trained(kernels=False), trained(kernels=True)
    torch.testing.assert_close(quick.losses, plain.losses, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(quick.checkpoints.loss, plain.checkpoints.loss, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(quick.flat.stats, plain.flat.stats, rtol=1e-2, atol=1e-3)
    # Gradients that cancel are noise, of which AdamW makes whole steps: its means are compared, not the weights.
    first, wanted = quick.optimizer.first, plain.optimizer.first
    assert (first - wanted).norm() < 0.01 * wanted.norm()
    assert quick.optimizer.steps.tolist() == plain.optimizer.steps.tolist()
