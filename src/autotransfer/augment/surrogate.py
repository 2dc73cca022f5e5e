"""Fourier transform surrogates (Schwabedal et al. 2018): the same spectra, other phases.

Where classes differ in rhythm and strength, and not in when something happens, phases are chance. Each frequency of a
window is turned by an angle of its own, the same in all channels: power spectra and the cross-spectra of channels stay
what they are, and so do mean and deviation of every channel. At strength 1 angles are uniform over the whole circle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..randomness import uniform
from .augmentation import Augmentation, TrainingBatch


@dataclass(frozen=True)
class Surrogate(Augmentation):
    strength: float = 0.5  # angles are uniform in ± this share of half a turn; 1: phases are lost

    of_signals: ClassVar[bool] = True
    tried: ClassVar[tuple[float, ...]] = (0.2, 1.0)
    name, rule, limit = "surrogate", "be a share of half a turn in (0, 1]", 1

    def __call__(self, x: Tensor, key: Tensor, batch: TrainingBatch) -> Tensor:
        times = x.shape[3]
        signal = x.transpose(1, 2)  # channel-major, as it is in memory
        signals, others = signal[:, : batch.signals], signal[:, batch.signals :]
        frequencies = times // 2 + 1
        place = torch.arange(frequencies, device=x.device)
        complex_valued = (place > 0) & (2 * place < times)  # 0 and Nyquist are real, and stay
        angle = self.strength * math.pi * (2 * uniform(key, frequencies).to(x.dtype) - 1) * complex_valued  # (G, B, F)
        turn = torch.complex(angle.cos(), angle.sin())
        turned = torch.fft.irfft(torch.fft.rfft(signals) * turn[:, None], n=times)
        return torch.cat([turned, others], 1).transpose(1, 2)
