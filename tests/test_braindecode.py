"""braindecode's models by name. Most tests have a package of their own that looks like it; the last ones need it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import autotransfer as at
from autotransfer.model.braindecode_models import parse
from autotransfer.models.loading import load_model
from autotransfer.runs.options import RunOptions
from autotransfer.runs.run import Run
from autotransfer.search.procedure import conduct
from tiny import create_run, tiny, tiny_file

MODELS = '''
import torch
from torch import nn

class SmallConformer(nn.Module):
    """As braindecode writes them: sizes by keyword, and a final layer."""

    def __init__(self, n_outputs=None, n_chans=None, chs_info=None, n_times=None, input_window_seconds=None,
                 sfreq=None, n_filters=4, kernels=(5, 5), drop_prob=0.5, activation=nn.ELU):
        super().__init__()
        if n_filters > 99:
            raise ValueError("too many filters\\nfor this one")
        self.first = nn.Conv1d(n_chans, n_filters, kernels[0], padding=kernels[0] // 2)
        self.norm, self.drop, self.act = nn.BatchNorm1d(n_filters), nn.Dropout(drop_prob), activation()
        self.final_layer = nn.Linear(n_filters * n_times, n_outputs)

    def forward(self, x):
        return self.final_layer(self.drop(self.act(self.norm(self.first(x)))).flatten(1))

class ShallowNet(SmallConformer):
    pass

def a_function():
    raise AssertionError("only models are looked up")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package that has the name and the habits of braindecode."""
    home = tmp_path / "packages" / "braindecode"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "models.py").write_text(MODELS)
    _forget(monkeypatch)
    monkeypatch.syspath_prepend(str(home.parent))
    yield home.parent
    _forget(monkeypatch)


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "braindecode"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_name_holds_the_hyperparameters_and_equal_models_have_equal_names() -> None:
    name = "braindecode:EEGConformer,drop_prob=3e-1,att_depth=2,kernels=[8, 16],activation=ELU,return_features=false"
    assert parse(name).options == {
        "drop_prob": 0.3, "att_depth": 2, "kernels": [8, 16], "activation": "ELU", "return_features": False
    }  # fmt: skip
    setting = at.Setting(encoder=name)
    shuffled = "braindecode:EEGConformer,att_depth=2,activation=ELU,kernels=[8,16],return_features=false,drop_prob=0.3"
    assert setting == at.Setting(encoder=shuffled)
    assert setting.key == at.Setting(encoder=shuffled).key
    assert setting.key != at.Setting(encoder=shuffled.replace("0.3", "0.2")).key
    assert at.Setting.from_json(setting.to_json()) == setting
    assert RunOptions(source="x.npz", encoder=name).encoder == setting.encoder


def test_a_run_is_resumed_and_its_model_loaded_by_name_alone(package: Path, tmp_path: Path) -> None:
    recordings = tiny(n_subjects=3, per_class=4)
    options = RunOptions(
        source=str(tiny_file(tmp_path, n_subjects=3, per_class=4)), encoder="braindecode:SmallConformer,n_filters=2",
        grid="uncensored", rule="published", adaptation="none", epochs=2, batch_size=8,
    )  # fmt: skip
    run = create_run(tmp_path / "run", options)
    assert "braindecode" in run.ledger.recall("versions", dict[str, str])
    run.ledger.close()
    again = Run.open(tmp_path / "run")
    conduct(again, lambda line: None, shown=False)
    again.ledger.close()
    model = load_model(tmp_path / "run" / "model")
    assert {part.setting.encoder for part in model.parts} == {"braindecode:SmallConformer,n_filters=2"}
    assert model.predict(recordings.X.numpy()).shape == (len(recordings.y),)


# The real one

try:
    import braindecode.models as real
except ImportError as error:
    real, absent = None, f"braindecode cannot be imported here ({error})"
else:
    absent = ""
needs_braindecode = pytest.mark.skipif(real is None, reason=absent or "never")


@needs_braindecode
@pytest.mark.filterwarnings("ignore")  # its own affair
@pytest.mark.parametrize("model", ["EEGConformer,n_filters_time=20,drop_prob=0.3", "ShallowFBCSPNet"])
def test_real_models_train_and_come_back(model: str, tmp_path: Path) -> None:
    recordings = at.synthetic(n_subjects=3, trials_per_class=4, n_times=200)
    found = at.CensoredClassifier(method="mmd", encoder=f"braindecode:{model}", max_epochs=1, sfreq=100.0).fit(
        recordings.X, recordings.y, subjects=recordings.subject
    )
    found.model_.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    torch.testing.assert_close(
        torch.tensor(again.predict_proba(recordings.X.numpy())),
        torch.tensor(found.model_.predict_proba(recordings.X.numpy())),
    )
    assert found.model_.setting.encoder.startswith("braindecode:")
