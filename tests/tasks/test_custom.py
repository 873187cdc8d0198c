from __future__ import annotations

import pickle
import random
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

import swamp
from swamp.commands.watch import stillness
from swamp.core.noise import Noise
from swamp.engines import graphed, processes, sequential
from swamp.report.page.document import lack
from swamp.results.stored_run import read_runs
from swamp.runs.config import build_config
from swamp.runs.stored import read_config, resume_command
from swamp.tasks.custom import CustomTask
from swamp.tasks.own import examples
from swamp.tasks.prunable import prunable_weights
from tests.support.runs import contents, iterate
from tests.support.trainings import distance, graphed_on_cpu, make_engine_context, make_jobs, start_of, trained

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 4, generator=GENERATOR)
LABELS = (X[:, 0] > 0).long()
SHORT: dict[str, Any] = {
    "engine": "sequential",
    "ticket.epochs": 1,
    "cycle.epochs": 2,
    "pruning.cycles": 2,
    "pruning.prune_fraction": 0.5,
    "methods.swamp.particles": 2,
}


def mlp(outputs: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, outputs))


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Draws from all three generators that people use."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        shift = torch.rand(()) + random.random() + float(np.random.rand())
        return X[index] + 0.01 * shift, LABELS[index]


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Any:
        return iter(X)


def prune(out: Path, *arguments: Any, **options: Any) -> swamp.Pruned:
    return swamp.prune(*arguments, out=out, quiet=True, **{**SHORT, **options})


def test_classification_with_a_module_leaves_it_alone_and_keeps_its_class(tmp_path: Path) -> None:
    model = mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = prune(tmp_path / "run", model, (X, LABELS), (X, LABELS))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert type(found.model) is nn.Sequential
    assert [row.num_survivors for row in found.rows] == [96, 48, 24]
    weights = dict(found.model.named_parameters())
    assert all(not weights[name][~layer].any() for name, layer in found.mask.layers.items())
    accuracy = float((found.model(X).argmax(1) == LABELS).double().mean())
    assert accuracy == found.rows[-1].metrics["accuracy"]
    assert found.rows[-1].metric == "accuracy"


def test_a_module_is_its_own_init_and_a_factory_draws_one() -> None:
    model = mlp()
    data = (X, LABELS)
    given = CustomTask(model, data, data)
    assert torch.equal(given.init(Noise(5)).parameters["0.weight"], model[0].weight)  # type: ignore[index]
    drawn = CustomTask(mlp, data, data)
    assert drawn.init(Noise(1)).digest() == drawn.init(Noise(1)).digest() != drawn.init(Noise(2)).digest()


class DrawnElsewhere(nn.Module):
    """Draws its init from NumPy and Python."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        nn.init.constant_(self.head.weight, np.random.rand())
        nn.init.constant_(self.head.bias, random.random())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def test_an_init_that_is_not_drawn_from_torch_follows_from_the_noise_too() -> None:
    task = CustomTask(DrawnElsewhere, (X, LABELS), (X, LABELS))
    for name in ("head.weight", "head.bias"):
        one, again, other = (task.init(Noise(seed)).parameters[name] for seed in (1, 1, 2))
        assert torch.equal(one, again)
        assert not torch.equal(one, other)


def test_regression_without_batchnorm(tmp_path: Path) -> None:
    data = (X, X.sum(1, keepdim=True))
    found = prune(tmp_path / "run", lambda: mlp(1), data, data)
    metrics = found.rows[-1].metrics
    assert list(metrics) == ["loss"]
    assert metrics["loss"] == pytest.approx(float(((found.model(data[0]) - data[1]) ** 2).mean().detach()), rel=1e-5)


def test_loss_and_metric_of_both_forms(tmp_path: Path) -> None:
    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 2.0]))

    def whole(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return weighted(model(batch[0]), batch[1])

    def errors(outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"errors": float((outputs.argmax(1) != targets).sum()), "count": len(targets)}

    def error_rate(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return (model(batch[0]).argmax(1) != batch[1]).double().mean()

    data = (X, LABELS)
    model = mlp()
    first = prune(tmp_path / "a", model, data, data, loss=weighted, metric=errors, batch_size=25)
    second = prune(tmp_path / "b", model, data, data, loss=whole, metric=error_rate, batch_size=25)
    assert first.rows[-1].metric == "errors"
    assert first.rows[-1].metrics["count"] == 60
    assert second.rows[-1].metrics["metric"] == pytest.approx(first.rows[-1].metrics["errors"] / 60)
    third = prune(tmp_path / "c", model, data, data, loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])), batch_size=25)
    assert third.rows[-1].metric == "loss"
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, third.model.state_dict()[name])


class Distilled(nn.Module):
    """A loss that is a module, with a teacher of its own, and takes a model and a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(4, 2).requires_grad_(False)

    def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), self.teacher(batch[0]))


def test_a_loss_that_is_a_module_may_take_the_model_too() -> None:
    x, labels = torch.randn(8, 4), torch.arange(8) % 2
    model, loss = nn.Linear(4, 2), Distilled()
    task = CustomTask(model, (x, labels), (x, labels), loss=loss)
    assert task.evaluate(task.model(), "test")["loss"] == pytest.approx(nn.functional.mse_loss(model(x), loss.teacher(x)).item())
    assert task.remarks == ()


def test_tensors_data_sets_and_loaders_give_the_same_network(tmp_path: Path) -> None:
    model = mlp()
    forms = [(X, LABELS), TensorDataset(X, LABELS), DataLoader(TensorDataset(X, LABELS), batch_size=20, shuffle=True)]
    found = [prune(tmp_path / str(i), model, form, form, batch_size=20) for i, form in enumerate(forms)]
    assert CustomTask(model, forms[2], forms[2]).batch_size == 20
    for other in found[1:]:
        assert all(torch.equal(tensor, found[0].model.state_dict()[name]) for name, tensor in other.model.state_dict().items())


def test_tensors_lie_on_the_device_and_data_sets_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (X, LABELS)
    assert CustomTask(mlp, data, data).resident
    assert not CustomTask(mlp, TensorDataset(*data), data).resident
    monkeypatch.setattr(examples, "MOST_BYTES", 8)
    assert not CustomTask(mlp, data, data).resident


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_are_trained_side_by_side_by_graphs(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a loss that is a module goes where the model is."""
    if where == "cpu":
        graphed_on_cpu(monkeypatch)
    loss, data = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])), (X, LABELS)
    model = mlp()
    tasks = [CustomTask(model, form, data, loss=loss, batch_size=25) for form in (data, TensorDataset(*data))]
    jobs = make_jobs(tasks[0])
    device = torch.device(where)
    expected = trained(sequential.build(make_engine_context(tasks[1], device), sequential.Config()), make_jobs(tasks[1]))
    engine = graphed.build(make_engine_context(tasks[0], device), graphed.Config(compile=False))
    found = trained(engine, jobs)
    assert [len(kind.particles) for kind in engine.pool.variants.values()] == [len(jobs)]
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, start_of(tasks[0], jobs)) < 1e-3
    assert next(loss.buffers()).device == torch.device("cpu")  # it stays the caller's
    assert pickle.loads(pickle.dumps(tasks[0])).fingerprint == tasks[0].fingerprint


def test_sparse_tensors_get_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"^a tensor of the training data is sparse or nested: give dense tensors, or a data set"):
        CustomTask(mlp(), (X.to_sparse(), LABELS), (X, LABELS))


def test_examples_by_number_of_either_split() -> None:
    for form in ((X[:7], LABELS[:7]), TensorDataset(X[:7], LABELS[:7])):
        task = CustomTask(mlp, (X, LABELS), form)
        assert (task.size("train"), task.size("test")) == (len(X), 7)
        assert torch.equal(task.unaugmented(torch.tensor([6, 0]), CPU, "test")[0], X[[6, 0]])
        assert torch.equal(task.unaugmented(torch.tensor([8]), CPU)[1], LABELS[[8]])


def test_augmentation_follows_from_the_noise_and_global_generators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    task = CustomTask(mlp, Augmented(), (X, LABELS), batch_size=20)

    def batch(noise: Noise, epoch: int, step: int) -> Tensor:
        return task.batch(task.plan(noise, epoch, CPU), step)[0]

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    first = batch(Noise(1), 0, 2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # type: ignore[index]
    assert not seeded  # a GPU's generator is the model's, for its dropout
    random.random()
    torch.rand(3)
    assert torch.equal(batch(Noise(1), 0, 2), first)
    assert not torch.equal(batch(Noise(1), 1, 2), first)
    assert not torch.equal(batch(Noise(2), 0, 2), first)


def test_what_a_model_draws_in_evaluation_follows_from_no_global_generator() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + torch.randn(()) + random.random() + float(np.random.rand())

    model = Noisy()
    task = CustomTask(model, (X, LABELS), (X, LABELS), loss=nn.CrossEntropyLoss(), metric=lambda outputs, targets: outputs.mean())
    before = torch.get_rng_state()
    measured = task.evaluate(model, "test")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    assert task.evaluate(model, "test") == measured


def test_dicts_tuples_of_inputs_and_tied_weights(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)
            self.b.weight = self.a.weight

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.out(self.a(left) + self.b(right))

    mapping = ({"left": X, "right": X.flip(0)}, LABELS)
    sequence = ((X, X.flip(0)), LABELS)
    tasks = [CustomTask(Two, data, data) for data in (mapping, sequence)]
    assert list(tasks[0].prunable) == ["a.weight", "out.weight"]
    assert tasks[0].macs["a.weight"] == 2 * 32  # used twice
    found = [prune(tmp_path / str(i), Two, data, data) for i, data in enumerate((mapping, sequence))]
    assert found[0].rows[-1].metrics == found[1].rows[-1].metrics
    assert found[0].model.a.weight is found[0].model.b.weight


@pytest.mark.parametrize("where", ["train", "test"])
def test_a_wrong_label_that_only_a_data_set_knows_is_said(where: str, tmp_path: Path) -> None:
    wrong = LABELS.clone()
    wrong[-1] = 7
    data = {name: TensorDataset(X, wrong if name == where else LABELS) for name in ("train", "test")}
    with pytest.raises(ValueError, match=rf"labels of the {where} data go from 0 to 7, but the model has 2 outputs: 0 to 1"):
        prune(tmp_path / "run", mlp, data["train"], data["test"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_tensors_that_are_not_finite_are_found_before_anything_is_written(tmp_path: Path, value: float) -> None:
    broken = X.clone()
    broken[40, 1] = value
    for what, train, test in (("training", broken, X), ("test", X, broken)):
        for options in ({}, {"validation": 0.5}, {"metric": lambda outputs, targets: outputs.sum()}):
            with pytest.raises(ValueError, match=rf"^example 40 of the {what} data holds a value that is not finite \({value}\): "):
                prune(tmp_path / "run", mlp, (train, LABELS), (test, LABELS), **options)
    with pytest.raises(ValueError, match=r"^example 7 of the training data"):
        CustomTask(mlp, (X, X[:, :2].index_fill(0, torch.tensor([7]), value)), (X, X[:, :2]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{}, {"validation": 10}])
def test_examples_of_a_data_set_that_are_not_finite_are_named_as_they_come(tmp_path: Path, options: dict[str, Any]) -> None:
    broken = X.clone()
    broken[41] = float("nan")
    whole, holed = TensorDataset(X, LABELS), TensorDataset(broken, LABELS)
    for what, train, test in (("training", holed, whole), ("test", whole, holed)):
        with pytest.raises(ValueError, match=rf"^example 41 of the {what} data holds a value that is not finite"):
            prune(tmp_path / what, mlp, train, test, **options)
    joined = DataLoader(holed, batch_size=60, collate_fn=lambda examples: {"x": torch.stack([x for x, _ in examples]).sum(0)})
    with pytest.raises(ValueError, match=r"^one of the examples 0, 1, 2, 3, 4, 5, 6, 7 … of the test data holds"):
        next(examples.Examples(joined, "test").in_order())


def test_the_test_data_are_never_in_memory_as_a_whole() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def watched(examples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        x, y = default_collate(examples)
        alive.append(weakref.ref(x))
        assert sum(one() is not None for one in alive) < 4
        return x, y

    loader = DataLoader(TensorDataset(X, LABELS), batch_size=5, collate_fn=watched)
    for options in ({}, {"loss": nn.CrossEntropyLoss()}):
        task = CustomTask(mlp, (X, LABELS), loader, **options)  # type: ignore[arg-type]
        task.evaluate(task.model(), "test")
    assert len(alive) > 24


@pytest.mark.parametrize("embedding_first", [True, False])
def test_a_linear_layer_tied_to_an_embedding_is_pruned_under_either_name(embedding_first: bool) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if embedding_first:
                self.embedding = nn.Embedding(6, 4)
            self.out = nn.Linear(4, 6, bias=False)
            if not embedding_first:
                self.embedding = nn.Embedding(6, 4)
            self.out.weight = self.embedding.weight

    weight = "embedding.weight" if embedding_first else "out.weight"
    for selector in ("linear", "out.weight", "embedding.*"):
        assert prunable_weights(Tied(), [selector]) == {weight: (6, 4)}


def test_a_stopped_run_goes_on_and_another_task_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support.cli import call

    model, data = mlp(), (X, LABELS)
    config = build_config("custom", SHORT)
    task = CustomTask(model, data, data)
    rows = iterate(config, tmp_path / "run", task=task)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    again = f"swamp resume {tmp_path / 'run'} --task MODULE:FUNCTION"
    assert stillness(config, tmp_path / "run", 9).endswith(again)
    ((reading,), _) = read_runs([tmp_path / "run"])
    assert re.sub(r"<.*?>", "", lack(reading)).rstrip().endswith(again)
    assert f"go on with: {again}\n" in call(capsys, "show", tmp_path / "run")[1]
    whole = prune(tmp_path / "whole", model, data, data)
    resumed = prune(tmp_path / "run", model, data, data)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert resumed.rows == whole.rows
    for other in ((X + 1, LABELS), (X[:-1], LABELS[:-1])):
        with pytest.raises(ValueError, match="began with other data than it is now given"):
            prune(tmp_path / "run", model, other, data)


def test_what_cannot_be_sent_is_trained_in_turn_and_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (X, LABELS)
    sendable, local = CustomTask(mlp, data, data), CustomTask(lambda: mlp(), data, data)
    assert not processes.why_not(sendable)
    assert processes.why_not(local)
    assert pickle.loads(pickle.dumps(sendable)).fingerprint == sendable.fingerprint
    swamp.prune(lambda: mlp(), data, data, out=tmp_path / "local", **{**SHORT, "engine": "processes"})
    captured = capsys.readouterr()
    assert captured.err.count("cannot be sent to worker processes") == 1
    assert "0.weight" in captured.out  # what is pruned is printed
    sent = prune(tmp_path / "sent", mlp, data, data, **{"engine": "processes", "engines.processes.workers": 1})
    turn = prune(tmp_path / "turn", mlp, data, data)
    assert contents(tmp_path / "sent") == contents(tmp_path / "turn")
    assert sent.rows == turn.rows


class NoCopy(nn.Linear):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copies")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((nn.Sequential(nn.ReLU(), nn.LayerNorm(4)), (X, LABELS), (X, LABELS)), {}, "no prunable weights"),
        ((mlp(2), (X, LABELS + 1), (X, LABELS)), {}, "labels of the train data go from 1 to 2, but the model has 2 outputs: 0 to 1"),
        ((mlp(2), (X, LABELS), (X, LABELS - 1)), {}, "labels of the test data go from -1 to 0"),
        ((mlp, (X[:0], LABELS[:0]), (X, LABELS)), {}, "the training data are empty"),
        ((mlp, (X, LABELS), []), {}, "the test data"),
        ((mlp, (X, LABELS[:-1]), (X, LABELS)), {}, "different lengths: 59, 60"),
        ((mlp, (X[:, :3], LABELS), (X, LABELS)), {}, "^your model raised RuntimeError: mat1 and mat2 .*of the training data"),
        ((mlp, Stream(), (X, LABELS)), {}, r"the training data \(Stream\) cannot be asked for by number"),
        ((mlp, X, (X, LABELS)), {}, "no pair of inputs and targets"),
        ((mlp, (X.numpy().astype(object), LABELS.numpy()), (X, LABELS)), {}, r"an array of the training data has the type object"),
        ((mlp, (X, LABELS), (X, LABELS.tolist())), {}, r"the test data are of type Tensor and list; make them tensors"),
        ((mlp, [(X[0], 1), (X[1, :2], 0)], (X, LABELS)), {}, "examples of the training data make no batch: stack expects each tensor"),
        ((mlp(1), (X, X[:, 0]), (X, X[:, 0])), {}, r"outputs and targets of one shape, not 2×1 and 2"),
        ((NoCopy(4, 2), (X, LABELS), (X, LABELS)), {}, r"cannot be copied \(no copies\); give a function"),
        ((lambda: 3, (X, LABELS), (X, LABELS)), {}, "returned a int, not a module"),
        ((mlp, (X, LABELS), (X, LABELS)), {"batch_size": 0}, "batch_size = 0"),
        ((mlp, (X, LABELS), (X, LABELS)), {"prunable": ["cnv"]}, "'cnv' matches no parameter; did you mean 'conv'"),
        ((mlp, (X, LABELS), (X, LABELS)), {"loss": lambda o, t: (o - 1).abs()}, "the loss must be one number"),
        ((mlp, (X, LABELS), (X, LABELS)), {"loss": lambda o, t: o.sum() * float("nan")}, "the loss of the untrained model is nan"),
        (
            (mlp, (X, LABELS), (X, LABELS)),
            {"metric": lambda o, t: o[99, 99]},
            "^your metric raised IndexError: index 99 is out of bounds .*of the test data",
        ),
        ((mlp, (X, LABELS), (X, LABELS)), {"method": "swmap"}, "did you mean 'swamp'"),
        ((mlp, (X, LABELS), (X, LABELS)), {"cylce": {"epochs": 1}}, "unknown setting 'cylce'"),
    ],
)
def test_bad_input_gets_one_sentence_before_anything_is_written(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        prune(tmp_path / "run", *arguments, **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.support.cli import call

    module = tmp_path / "my_task_module.py"
    module.write_text(
        "import torch\nfrom torch import nn\nimport swamp\n"
        "def make(scale=1.0):\n"
        "    x = torch.linspace(-1, 1, 40).repeat(4, 1).T.contiguous() * scale\n"
        "    model = nn.Linear(4, 2)\n"
        "    with torch.no_grad(): model.weight.fill_(0.1); model.bias.zero_()\n"
        "    return swamp.CustomTask(model, (x, (x[:, 0] > 0).long()), (x, (x[:, 0] > 0).long()), batch_size=10)\n"
        "def other(): return make(2.0)\n"
        "def wrong(): return 3\n"
        "x = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = [f"--{name}={value}" for name, value in SHORT.items()]
    flags += ["--engine=processes", "--engines.processes.workers=1"]
    status, out, err = call(capsys, "run", "custom", "--task", "my_task_module:make", *flags, "--out", "run")
    assert status == 0, err
    assert "swamp on custom" in out
    assert resume_command(read_config(Path("run")), Path("run")) == "swamp resume run --task my_task_module:make"
    for arguments, message in [
        (["resume", "run", "--task", "my_task_module:other"], "began with other data than it is now given"),
        (["resume", "run", "--task", "my_task_module:wrong"], "returned a int, not a task"),
        (["resume", "run", "--task", "my_task_module:mkae"], "has no attribute 'mkae'"),
        (["resume", "run", "--task", "my_task_module:x"], "is a int, not a function that returns a task"),
        (["resume", "run", "--task", "nothing_here:make"], "No module named 'nothing_here'"),
        (["run", "custom", "--out", "x"], "name the function that makes it: --task module:function"),
        (["run", "custom", "--task", "a b:c", "--out", "x"], "tasks.custom.factory = 'a b:c'"),
    ]:
        status, _, err = call(capsys, *arguments)
        assert status == 2
        assert message in err
    status, _, err = call(capsys, "resume", "run", "--task", "my_task_module:make")
    assert status == 0
    assert "is finished" in err


def test_distributions_can_register_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from swamp.core import discovery
    from swamp.methods import imp
    from swamp.tasks.models import find_model

    class Point:
        def __init__(self, name: str, value: Any) -> None:
            self.name, self.value = name, value

        def load(self) -> Any:
            return self.value

    class Module:
        name, run = "theirs", imp.run

    points = {
        "swamp.models": [Point("tiny", lambda channels, classes: nn.Linear(channels, classes))],
        "swamp.methods": [Point("x", Module)],
    }
    monkeypatch.setattr(discovery, "entry_points", lambda group: points.get(group, []))
    assert isinstance(find_model("tiny")(3, 2), nn.Linear)
    import swamp.methods

    assert {"imp", "swamp", "theirs"} <= set(discovery.modules_with(swamp.methods, "run"))


def test_a_batch_of_one_example_is_found_before_training() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    data = torch.randn(33, 4), torch.arange(33) % 2
    with pytest.raises(ValueError, match="33 examples in batches of 32 has a batch of one example"):
        CustomTask(model, data, data, batch_size=32)
    CustomTask(model, data, data, batch_size=31)


def test_less_loss_is_better_and_more_of_a_metric_is() -> None:
    data = torch.randn(20, 4), torch.randn(20, 1)

    def maximise(**given: Any) -> bool | None:
        task = CustomTask(nn.Linear(4, 1), data, data, **given)
        return task.metrics[task.metric].maximise

    assert maximise() is False
    assert maximise(metric=lambda outputs, targets: 1.0) is True
    assert maximise(metric=lambda outputs, targets: 1.0, maximise=False) is False
    assert maximise(metric=lambda outputs, targets: {"nll": 1.0, "mine": 2.0}) is False


def test_validation_examples_are_held_out() -> None:
    data = torch.arange(20.0).reshape(20, 1), torch.arange(20) % 2
    task = CustomTask(nn.Linear(1, 2), data, data, validation=0.25)
    assert (task.num_examples, task.examples["validation"].count) == (15, 5)
    held_out = {float(x) for batch in task.examples["validation"].in_order() for x in batch[0]}
    trained = {float(x) for batch in task.examples["train"].in_order() for x in batch[0]}
    assert held_out | trained == set(range(20))
    assert not held_out & trained
