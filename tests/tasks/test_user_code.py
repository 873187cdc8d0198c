from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

import swamp
from swamp.tasks.custom import CustomTask
from swamp.tasks.user_code import UserCodeError, call_metric, user_code_error
from tests.support.cli import call

X = torch.linspace(-1, 1, 40).repeat(4, 1).T.contiguous()
LABELS = (X[:, 0] > 0).long()
SHORT: dict[str, Any] = {"engine": "sequential", "method": "imp", "ticket.epochs": 1, "cycle.epochs": 1, "pruning.cycles": 1}


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x)[self.missing]  # type: ignore[index]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 3), nn.Linear(3, 2)

    def forward(self, sequences: PackedSequence) -> Tensor:
        return self.out(self.lstm(sequences)[1][0][-1])


def test_packed_sequences_are_one_input() -> None:
    def packed(examples: list[tuple[Tensor, Tensor]]) -> tuple[PackedSequence, Tensor]:
        return pack_sequence([x[None].repeat(1 + int(y), 1) for x, y in examples], False), torch.stack([y for _, y in examples])

    loader = DataLoader(TensorDataset(X, LABELS), batch_size=16, collate_fn=packed)
    task, (sequences, labels) = CustomTask(Recurrent(), loader, loader), packed(list(zip(X, LABELS, strict=True)))
    model = task.model().eval()
    assert task.evaluate(model, "test")["accuracy"] == pytest.approx(float((model(sequences).argmax(1) == labels).double().mean()))


class LateData(Dataset[tuple[Tensor, Tensor]]):
    """Reads well except for one example, which the checks do not read."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 17:
            raise KeyError("example 17")
        return X[index], LABELS[index]


def bad_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs + "text"  # type: ignore[operator]


def bad_metric(outputs: Tensor, targets: Tensor) -> float:
    return {}["f1"]  # type: ignore[index]


def bad_collate(examples: list[Any]) -> Any:
    raise ZeroDivisionError


def bad_model() -> nn.Module:
    raise OSError("no weights")


@pytest.mark.parametrize(
    ("model", "train", "options", "sentence", "cause", "line"),
    [
        (Broken(), (X, LABELS), {}, "your model raised AttributeError: ", AttributeError, "[self.missing]"),
        (nn.Linear(4, 2), (X, LABELS), {"loss": bad_loss}, "your loss raised TypeError: ", TypeError, 'outputs + "text"'),
        (nn.Linear(4, 2), (X, LABELS), {"metric": bad_metric}, "your metric raised KeyError: 'f1'", KeyError, '{}["f1"]'),
        (bad_model, (X, LABELS), {}, "your function raised OSError: no weights", OSError, 'OSError("no weights")'),
        (
            nn.Linear(4, 2),
            DataLoader(TensorDataset(X, LABELS), collate_fn=bad_collate),
            {},
            "your collate_fn raised ZeroDivisionError: ",
            ZeroDivisionError,
            "raise ZeroDivisionError",
        ),
    ],
)
def test_checks_say_whose_code_it_was(model: Any, train: Any, options: Any, sentence: str, cause: type, line: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        CustomTask(model, train, (X, LABELS), **options)
    assert str(caught.value).startswith(sentence)
    assert isinstance(caught.value.__cause__, cause)
    assert line in caught.value.user_traceback
    assert "swamp/tasks" not in caught.value.user_traceback


def test_an_error_in_training_says_whose_code_it_was(tmp_path: Path) -> None:
    calls = []

    def late(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 20:
            raise LookupError("after a while")
        return nn.functional.cross_entropy(outputs, targets)

    with pytest.raises(UserCodeError, match=r"^your loss raised LookupError: after a while$") as caught:
        swamp.prune(nn.Linear(4, 2), (X, LABELS), (X, LABELS), loss=late, batch_size=10, out=tmp_path / "a", quiet=True, **SHORT)
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(UserCodeError, match=r"^your data set raised KeyError: 'example 17' \(in the training data\)$"):
        swamp.prune(nn.Linear(4, 2), LateData(), (X, LABELS), out=tmp_path / "b", quiet=True, **SHORT)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": lambda parameters: 1 / 0}, "your optimizer's function raised ZeroDivisionError: division by zero"),
        ({"optimizer": sgd, "schedule": lambda optimizer, steps: 1 / 0}, "your schedule raised ZeroDivisionError: division by zero"),
        (
            {"optimizer": sgd, "schedule": lambda optimizer, steps: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3)},
            "your schedule raised ValueError: Tried to step 4 times. The specified number of total steps is 3",
        ),
    ],
)
def test_optimizers_and_schedules_are_the_users_code_too(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        swamp.prune(nn.Linear(4, 2), (X, LABELS), (X, LABELS), batch_size=10, out=tmp_path / "a", quiet=True, **options, **SHORT)
    assert str(caught.value) == sentence


class EndsEarly(LateData):
    """Says by mistake that there are no more examples."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 17:
            raise StopIteration
        return X[index], LABELS[index]


def test_a_data_set_that_stops_does_not_shorten_a_batch_in_silence(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"^your data set raised StopIteration: StopIteration"):
        swamp.prune(nn.Linear(4, 2), EndsEarly(), (X, LABELS), batch_size=10, out=tmp_path / "a", quiet=True, **SHORT)


def test_an_error_that_a_worker_sends_says_whose_code_it_was() -> None:
    """Its traceback comes as a note."""
    try:
        call_metric(bad_metric, X, LABELS)
    except KeyError as error:
        text = traceback.format_exc()
        sent = pickle.loads(pickle.dumps(error))
    assert user_code_error(sent) is None
    sent.add_note(text)
    found = user_code_error(sent)
    assert str(found) == "your metric raised KeyError: 'f1'"
    assert found
    assert '{}["f1"]' in found.user_traceback


def test_a_lack_of_memory_and_errors_of_swamp_stay_what_they_are() -> None:
    def caught(error: Exception) -> Exception:
        def metric(outputs: Tensor, targets: Tensor) -> float:
            raise error

        with pytest.raises(type(error)) as found:
            CustomTask(nn.Linear(4, 2), (X, LABELS), (X, LABELS), metric=metric)
        return found.value

    assert user_code_error(caught(MemoryError())) is None
    assert user_code_error(ValueError("of swamp")) is None


def test_the_command_line_shows_the_users_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "module_of_mistakes.py").write_text(
        "import torch\nfrom torch import nn\nimport swamp\n"
        "x = torch.linspace(-1, 1, 40).repeat(4, 1).T.contiguous()\n"
        "data = x, (x[:, 0] > 0).long()\n"
        "count = 0\n"
        "def loss(outputs, targets):\n"
        "    global count\n"
        "    count += 1\n"
        "    return nn.functional.cross_entropy(outputs, targets) if count < 20 else outputs.no_such_name\n"
        "def make():\n"
        "    return swamp.CustomTask(lambda: nn.Linear(4, 2), data, data, loss=loss, batch_size=10)\n"
        "def broken():\n"
        "    return 1 / 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = [f"--{name}={value}" for name, value in SHORT.items()]
    status, _, err = call(capsys, "run", "custom", "--task", "module_of_mistakes:make", *flags, "--out", tmp_path / "run")
    assert status == 2
    assert "swamp: your loss raised AttributeError: 'Tensor' object has no attribute 'no_such_name'\n" in err
    assert "module_of_mistakes.py" in err
    assert "outputs.no_such_name" in err
    assert "swamp/training" not in err
    status, _, err = call(capsys, "run", "custom", "--task", "module_of_mistakes:broken", *flags, "--out", tmp_path / "other")
    assert status == 2
    assert err.startswith("swamp: your function raised ZeroDivisionError: division by zero\n")
    assert "return 1 / 0" in err
