"""Mistakes of a first call of `swamp.prune`: each gets one sentence that says what is wrong and what is right, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import swamp

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
LISTS = X.tolist(), Y.tolist()


class Frame:
    """A table as pandas has them."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def to_numpy(self) -> Any:
        return X.numpy()


def network() -> nn.Module:
    return nn.Linear(4, 2)


def outputs_alone(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs


SETTINGS: dict[str, dict[str, Any]] = {
    "sparsity = 0.0: expected a share of the weights above 0, such as 0.9; method 'dense' trains": {"sparsity": 0.0},
    "pruning.sparsity = 1: expected a share of the weights below 1, such as 0.9 for 90 %": {"sparsity": 1.0},
    "pruning.sparsity = 95: expected a share of the weights below 1, such as 0.95 for 95 %": {"sparsity": 95},
    "pruning.sparsity = 100: expected a share of the weights below 1, such as 0.9 for 90 %": {"sparsity": 100},
    "pruning.sparsity = '0.9': expected a number": {"sparsity": "0.9"},
    "fast = 'yes': expected True or False": {"fast": "yes"},
    "fast = 1: expected True or False": {"fast": 1},
    "quiet = 'no': expected True or False": {"quiet": "no"},
    "maximise = 'yes': expected True or False": {"maximise": "yes"},
    "batch_size = '32': expected a whole number, at least 1": {"batch_size": "32"},
    "batch_size = 32.0: expected a whole number, at least 1": {"batch_size": 32.0},
    "batch_size = 0: expected a whole number, at least 1": {"batch_size": 0},
    "validation = 1.5: expected a number of examples, or a share below 1": {"validation": 1.5},
    "validation = -1: expected a number of examples, or a share below 1": {"validation": -1},
    "validation = '0.1': expected a number of examples, or a share below 1": {"validation": "0.1"},
    "limit_examples = 'some': expected a whole number, or 'batch'": {"limit_examples": "some"},
    "prunable = 'conv': expected a list, such as ['conv']": {"prunable": "conv"},
    "exclude = [3]: expected a list, such as ['conv', 'head.*']": {"exclude": [3]},
    "no prunable weights: exclude leaves out all that linear select": {"prunable": ["linear"], "exclude": ["*"]},
    "unknown method 'IMP'; did you mean 'imp'?": {"method": "IMP"},
    'trackers = 3: expected names, such as ["tensorboard"]': {"trackers": 3},
    "listener = <built-in function print>: expected a swamp.Listener": {"listener": print},
    "out = 3: expected the name of a directory": {"out": 3},
    "recipe = 3: expected the name of a recipe, or of a TOML file": {"recipe": 3},
    "no prunable weights: an empty list selects nothing in this model; prunable takes patterns of names, too: weight": {"prunable": []},
    "the metric cannot take a batch of the test data: the metric is no number and no dict of numbers but tensor(": {
        "metric": outputs_alone
    },
}
MODELS_AND_DATA: dict[str, tuple[Any, Any]] = {
    "model is a str; give a module, or a function that makes one": ("resnet18", (X, Y)),
    "model is a tuple; give a module, or a function that makes one": ((X, Y), network()),
    "the training data are of type list; make them tensors": (network(), LISTS),
    "the training data are of type list; make them tensors (": (network(), list(LISTS)),
    "the training data are of type list; make them tensors (torch.as_tensor)": (network(), {"x": LISTS[0], "labels": LISTS[1]}),
    "the training data are of type Frame; make them tensors": (network(), Frame()),
    "the training data are of type Frame and Tensor; make them tensors": (network(), (Frame(), Y)),
    "which float targets mean (classes are whole numbers)": (network(), (X, Y.float())),
    "but the model has one output: give bool targets for yes or no": (nn.Linear(4, 1), (X, Y)),
}


@pytest.mark.parametrize("sentence", SETTINGS)
def test_a_wrong_argument(sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        swamp.prune(network(), (X, Y), (X, Y), **SETTINGS[sentence])
    assert str(error.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sentence", MODELS_AND_DATA)
def test_a_wrong_model_or_wrong_data(sentence: str, tmp_path: Path) -> None:
    model, data = MODELS_AND_DATA[sentence]
    with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
        swamp.prune(model, data, (X, Y), out=tmp_path / "run")
    assert sentence in str(error.value)
    assert not (tmp_path / "run").exists()


def test_no_message_names_an_option_of_the_command_line(tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": "imp", "engine": "sequential", "ticket": {"epochs": 0}, "cycle": {"epochs": 1}, "quiet": True}
    (tmp_path / "file").write_text("")

    def call(out: str, **changes: Any) -> None:
        swamp.prune(
            network(), (X, changes.pop("labels", Y)), (X, Y), out=tmp_path / out, **{**options, "pruning": {"cycles": 0}, **changes}
        )

    call("run")
    wrong: list[dict[str, Any]] = [
        {"out": "run", "pruning": {"cycles": 1}},
        {"out": "run", "metric": lambda outputs, targets: 1.0},
        {"out": "run", "labels": 1 - Y},
        {"out": "file"},
        {"out": "."},
        {"out": "other", "cache": tmp_path / "file"},
        {"out": "other", "cache": tmp_path / "run"},
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="directory") as error:
            call(**arguments)
        assert "--" not in str(error.value)
