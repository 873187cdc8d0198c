from __future__ import annotations

import pickle
from collections import Counter, UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import swamp
from swamp.core.noise import Noise
from swamp.tasks.custom import CustomTask
from swamp.tasks.own import examples
from swamp.tasks.own.examples import Examples

CPU = torch.device("cpu")
X = torch.arange(40.0).reshape(40, 1) / 40
LABELS = torch.arange(40) % 2
DATA = TensorDataset(X, LABELS)
SHORT: dict[str, Any] = {"engine": "sequential", "method": "imp", "ticket.epochs": 1, "cycle.epochs": 1, "pruning.cycles": 1}


def make(loader: Any, **options: Any) -> CustomTask:
    model = nn.Linear(1, 2)
    nn.init.constant_(model.weight, 0.1)
    nn.init.constant_(model.bias, 0.0)
    return CustomTask(model, loader, (X, LABELS), **options)


def loader(sampler: Sampler[int] | None = None, **options: Any) -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=8, sampler=sampler, **options)


def epoch(task: CustomTask, seed: int = 0) -> list[int]:
    """The numbers of the examples of an epoch, in order, as its batches have them."""
    plan = task.plan(Noise(seed), 0, CPU)
    batches = [task.batch(plan, step) for step in range(task.steps_per_epoch)]
    return [round(40 * float(x)) for batch in batches for x in batch[0]]


class Halves(Sampler[int]):
    """Draws a half of the even numbers, from torch's global generator."""

    def __iter__(self) -> Iterator[int]:
        return iter((2 * torch.randperm(20)[:10]).tolist())

    def __len__(self) -> int:
        return 10


class Stateful(Halves):
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.permutation(40).tolist())


class Counting(Halves):
    def set_epoch(self, epoch: int) -> None: ...


def test_an_epoch_has_each_example_once_whether_or_not_a_loader_shuffles() -> None:
    plain = make(DATA, batch_size=8)
    for other in (loader(), loader(shuffle=True), DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 8, False))):
        assert make(other).fingerprint == plain.fingerprint
        assert epoch(make(other)) == epoch(plain)
    assert sorted(epoch(plain)) == list(range(40))


def test_weights_of_examples_decide_how_often_they_come() -> None:
    weights = [0.0] * 20 + [1.0] * 15 + [10.0] * 5
    task = make(loader(WeightedRandomSampler(weights, 400)))
    assert (task.num_examples, task.steps_per_epoch, task.size("train")) == (400, 50, 40)
    drawn = Counter(epoch(task))
    assert min(drawn) >= 20
    assert sum(drawn[number] for number in range(35, 40)) == pytest.approx(400 * 50 / 65, abs=60)
    assert epoch(task) == epoch(task) != epoch(task, seed=1)
    held_out = make(loader(WeightedRandomSampler(weights, 40)), validation=0.5)
    assert held_out.num_examples == 20
    assert set(epoch(held_out)) <= set(range(20, 40))


def test_a_subset_is_the_whole_data_of_training_and_of_test() -> None:
    chosen = [3, 1, 4, 15, 9, 26]
    task = make(loader(SubsetRandomSampler(chosen)))
    assert task.size("train") == task.num_examples == 6
    assert sorted(epoch(task)) == sorted(chosen)
    tested = CustomTask(nn.Linear(1, 2), (X, LABELS), loader(SubsetRandomSampler(chosen)))
    assert [round(40 * float(x)) for batch in tested.examples["test"].in_order() for x in batch[0]] == chosen


def test_draws_with_replacement_and_a_number_of_draws() -> None:
    few = make(loader(RandomSampler(DATA, num_samples=12)))
    assert len(set(epoch(few))) == 12
    many = make(loader(RandomSampler(DATA, num_samples=100)))
    assert set(Counter(epoch(many)).values()) == {2, 3}
    again = make(loader(RandomSampler(DATA, replacement=True, num_samples=40)))
    assert max(Counter(epoch(again)).values()) > 1


def test_a_sampler_of_the_users_own_is_a_function_of_the_noise() -> None:
    task = make(loader(Halves()))
    assert (task.num_examples, task.steps_per_epoch) == (10, 2)
    state = torch.get_rng_state()
    assert epoch(task) == epoch(task) != epoch(task, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(set(epoch(task))) == 10
    assert pickle.loads(pickle.dumps(task)).fingerprint == task.fingerprint
    with pytest.raises(ValueError, match="Halves chooses among all training examples, so that none can be held out"):
        make(loader(Halves()), validation=5)


def test_the_last_batch_is_dropped_in_training_and_not_in_tests() -> None:
    data = TensorDataset(X[:30], LABELS[:30])
    task = CustomTask(nn.Linear(1, 2), *[DataLoader(data, batch_size=8, drop_last=True)] * 2)
    assert (task.num_examples, task.steps_per_epoch, task.size("test")) == (24, 3, 30)
    assert len(epoch(task)) == 24
    assert sum(len(batch[0]) for batch in task.examples["test"].in_order()) == 30
    assert task.remarks == ("drop_last of the test data's loader: not used, since all test examples are measured",)
    with pytest.raises(ValueError, match="drop_last leaves no batch: an epoch has 30 examples, and a batch 32"):
        CustomTask(nn.Linear(1, 2), DataLoader(data, batch_size=32, drop_last=True), data)


def test_samplers_and_drop_last_are_part_of_the_fingerprint() -> None:
    loaders = [
        loader(),
        loader(drop_last=True),
        loader(WeightedRandomSampler([1.0] * 40, 40)),
        loader(WeightedRandomSampler([2.0] * 40, 40)),
        loader(WeightedRandomSampler([1.0] * 40, 48)),
        loader(RandomSampler(DATA, num_samples=16)),
        loader(RandomSampler(DATA, replacement=True)),
        loader(SubsetRandomSampler(range(20))),
        loader(Halves()),
    ]
    assert len({make(one).fingerprint for one in loaders}) == len(loaders)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (DataLoader(DATA, batch_size=None), "batch_size=None, so that its data set makes the batches"),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2]]), r"a batch_sampler of its own \(list\): give a sampler and a batch_size"),
        (loader(DistributedSampler(DATA, 2, 0)), r"a sampler \(DistributedSampler\): leave it out"),
        (loader(Stateful()), r"a sampler \(Stateful\) whose order does not follow from"),
        (loader(Counting()), r"a sampler \(Counting\) that counts epochs itself"),
        (loader([]), r"a sampler \(list\) that draws nothing"),  # type: ignore[arg-type]
        (loader([40]), r"a sampler \(list\) with an index outside the data set: it has 40 examples"),  # type: ignore[arg-type]
        (loader(SubsetRandomSampler([40])), "a SubsetRandomSampler that does not fit its data set of 40 examples"),
        (loader(WeightedRandomSampler([1.0] * 39, 40)), "a WeightedRandomSampler of 39 weights: the data set has 40 examples"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(given: DataLoader[Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^the loader of the training data has {message}") as caught:
        make(given)
    assert "\n" not in str(caught.value)


def test_test_examples_are_measured_once_each() -> None:
    for sampler in (WeightedRandomSampler([1.0] * 40, 40), RandomSampler(DATA, replacement=True), Halves()):
        with pytest.raises(
            ValueError, match=rf"test data has a sampler \({type(sampler).__name__}\): test examples are measured once each"
        ):
            CustomTask(nn.Linear(1, 2), (X, LABELS), loader(sampler))


def test_what_is_not_used_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = loader(num_workers=1, worker_init_fn=print, generator=torch.Generator())
    swamp.prune(nn.Linear(1, 2), both, both, out=tmp_path / "run", **SHORT)
    said = capsys.readouterr().err
    assert (
        said.count("num_workers, worker_init_fn, generator of the data loader: not used, since examples are fetched in the training") == 1
    )


class Stated(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, stated: int = 40) -> None:
        self.stated = stated

    def __len__(self) -> int:
        return self.stated

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(DATA[index] for index in range(40))


def test_an_iterable_data_set_of_stated_length_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make(DATA, batch_size=8)
    for given in (Stated(), DataLoader(Stated(), batch_size=8)):
        assert epoch(make(given, batch_size=8)) == epoch(plain)
    for stated, message in (
        (41, "say that they have 41 examples, and give only 40"),
        (39, "say that they have 39 examples, and give more"),
    ):
        with pytest.raises(ValueError, match=message):
            make(Stated(stated))
    monkeypatch.setattr(examples, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"\(Stated\) are iterable and larger than .* GiB, too large to be read into memory"):
        make(Stated())


def test_arrays_are_taken_like_tensors() -> None:
    floats, labels = X.numpy(), LABELS.numpy()
    shared = Examples((floats, labels), "training")
    assert shared.data[0].data_ptr() == floats.ctypes.data  # not copied
    double = floats.astype(np.float64)
    read_only = floats.copy()
    read_only.flags.writeable = False
    forms = [(double, labels), (floats[::-1][::-1], labels), (read_only, labels), (floats.astype(">f4"), labels), (X, labels)]
    for form in forms:
        assert make(form, batch_size=8).fingerprint == make((X, LABELS), batch_size=8).fingerprint
    for kept in (np.uint16, np.int8, bool):
        assert Examples({"x": labels.astype(kept)}, "test").data["x"].tolist() == LABELS.to(torch.int).tolist()
    for wrong in (labels.astype(object), labels.astype(str), labels.astype(np.uint64), labels.astype(complex)):
        with pytest.raises(ValueError, match=r"an array of the test data has the type .*: give numbers"):
            Examples((floats, wrong), "test")


def test_a_list_of_pairs_is_a_data_set() -> None:
    pairs = [(X[index], LABELS[index]) for index in range(40)]
    assert epoch(make(pairs, batch_size=8)) == epoch(make(DATA, batch_size=8))
    arrays = [(np.ones((4, 3), np.float32), np.zeros(4, np.int64))] * 5
    assert Examples(arrays, "training").count == 5


def test_batches_of_any_mapping_are_dicts_and_others_need_a_tensor() -> None:
    @dataclass
    class Pair:
        x: Tensor
        y: Tensor

    data: Any = [{"x": X[index], "labels": LABELS[index]} for index in range(12)]

    def collating(kind: Callable[[Any], Any]) -> DataLoader[Any]:
        return DataLoader(data, batch_size=5, collate_fn=lambda batch: kind(default_collate(batch)))

    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    task = CustomTask(Net(1, 2), collating(UserDict), collating(UserDict))
    plain = CustomTask(task.original, collating(dict), collating(dict))
    assert isinstance(task.examples["train"].first(), dict)
    assert task.evaluate(task.model(), "test") == plain.evaluate(task.model(), "test")
    with pytest.raises(
        ValueError, match=r"^a batch of the training data is a Pair in which no tensor is found; make it a tensor, or a tuple,"
    ):
        CustomTask(
            Net(1, 2),
            collating(lambda batch: Pair(batch["x"], batch["labels"])),
            collating(dict),
            loss=lambda model, batch: model(batch.x).mean(),
        )


def test_a_stream_of_unknown_length_and_a_path_get_a_sentence() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter([(X[0], LABELS[0])])

    with pytest.raises(ValueError, match=r"\(Endless\) cannot be asked for by number: .*, or state its length by __len__"):
        CustomTask(nn.Linear(4, 2), Endless(), (X, LABELS))
    with pytest.raises(ValueError, match=r"the training data \(str\) cannot be asked for by number"):
        CustomTask(nn.Linear(4, 2), "data/images", (X, LABELS))


def test_targets_of_a_data_set_count_only_if_its_examples_have_them() -> None:
    class Transformed(Dataset[Any]):
        """Keeps ten classes and gives two, as data sets of torchvision with a target_transform do."""

        def __init__(self, change: Callable[[int], int]) -> None:
            self.targets, self.change = (torch.arange(40) % 10).tolist(), change

        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return X[index], self.change(self.targets[index])

    halves = Transformed(lambda target: int(target >= 5))
    assert make(halves).num_classes is None
    assert make(halves).all_labels("train") is None
    same = CustomTask(nn.Linear(1, 10), Transformed(int), Transformed(int))
    assert same.num_classes == 10


class Named(Dataset[Any]):
    """Its `targets` are no numbers, or no targets of its examples."""

    def __init__(self, targets: Any) -> None:
        self.targets = targets

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        return torch.full((3,), float(index)), index % 2, index


@pytest.mark.parametrize("targets", [["cat", "dog"] * 10, [{"boxes": [1]}] * 20, [[1], [1, 2]] * 10])
def test_targets_of_a_data_set_may_be_no_numbers(targets: Any) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    task = CustomTask(nn.Linear(3, 2), Named(targets), Named(targets), loss=loss)
    assert task.fingerprint
    assert task.num_classes is None


def test_a_fingerprint_covers_the_targets_that_a_data_set_stores_whatever_its_batches_are() -> None:
    """Runs on such data began with this key."""
    key = Examples(Named([0, 1] * 10), "training").fingerprint()
    assert key == "e634252f594f9c79bb0fec3cc74ca9dd4c0382f9"
    assert Examples(Named([1, 0] * 10), "training").fingerprint() != key
