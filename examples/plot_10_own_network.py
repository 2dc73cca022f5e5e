"""
Your own network
================

Any PyTorch module that maps windows (B, channels, times) to features with B on axis 0 can replace EEGNet. Give
a factory: a class or function that makes the module.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import autotransfer as at


class Small(nn.Module):
    """One convolution and average pooling."""

    def __init__(self, n_channels: int, n_times: int) -> None:
        super().__init__()
        self.filters = nn.Conv1d(n_channels, 8, kernel_size=9, padding=4)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.norm(self.filters(x)))
        return self.drop(nn.functional.avg_pool1d(h, 8))  # (B, 8, times // 8), flattened later


rec = at.synthetic(n_subjects=6, windows_per_class=12, n_times=64)
settings = {
    "EEGNet": at.Setting(max_epochs=8, batch_size=32, lr=3e-3),
    "Small": at.Setting(encoder="small", max_epochs=8, batch_size=32, lr=3e-3),
}
folds = at.leave_one_subject_out(rec)
jobs = [at.Job(setting, fold) for setting in settings.values() for fold in folds]
outcomes = at.train(rec, jobs, encoders={"small": Small}, progress=False)

figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for k, name in enumerate(settings):
    scores = [outcome.test_score for outcome in outcomes[k * len(folds) : (k + 1) * len(folds)]]
    axis.plot(rec.subjects, scores, "os"[k], label=name)
axis.set(xlabel="held-out subject", ylabel="balanced accuracy")
axis.legend(frameon=False)

# %%
# In a run the module takes the place of EEGNet among the candidates:
#
# .. code-block:: bash
#
#    autotransfer run study.npz --out run --encoder networks:Small    # class Small in networks.py in this folder
#    autotransfer resume run --encoder networks:Small
#
# Only the name is stored, not the code, so ``resume``, ``predict`` and ``export`` need the option again. In
# scikit-learn it is ``CensoredClassifier(encoder=Small)``.
#
# A model of `braindecode <https://braindecode.org>`_ needs a factory such as ``lambda n_channels, n_times:
# EEGNetv4(n_chans=n_channels, n_outputs=2, n_times=n_times)``. If a module has a ``final_layer``, the latent
# features are the input of that layer.
#
# ``torch.func`` stacks the fits of all folds. Modules whose control flow depends on values, or that draw their
# own random numbers, are trained one after the other.
