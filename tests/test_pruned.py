"""What `swamp.prune` returns, and how it is called."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import swamp
from swamp.core.state import State
from swamp.engines.engine import Progress
from swamp.pruned import Pruned
from swamp.store.records import RowRecord
from tests.support.runs import contents

X = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
DATA = X, (X[:, 0] > 0).long()
SHORT: dict[str, Any] = {"engine": "sequential", "method": "imp", "ticket.epochs": 0, "cycle.epochs": 2, "quiet": True}
HALVED: dict[str, Any] = {"pruning": {"prune_fraction": 0.5, "cycles": 3}}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Pruned:
    return swamp.prune(mlp, DATA, DATA, out=tmp_path_factory.mktemp("runs") / "mine", validation=0.25, **SHORT, **HALVED)


def with_values(found: Pruned, values: list[float]) -> Pruned:
    """The same networks, as if the metric had these values on both splits."""
    made = copy.copy(found)
    made.rows = [_with_accuracy(row, value) for row, value in zip(found.rows, values, strict=True)]
    made._validated = {row.cycle: value for row, value in zip(found.rows, values, strict=True)}
    return made


def _with_accuracy(row: RowRecord, value: float) -> RowRecord:
    made = copy.copy(row)
    return swamp.RowRecord(
        **{**{name: getattr(made, name) for name in made.__struct_fields__}, "metrics": {**row.metrics, "accuracy": value}}
    )


def test_a_network_is_loaded_by_cycle_or_sparsity(found: Pruned) -> None:
    assert [row.num_survivors for row in found.rows] == [96, 48, 24, 12]
    by_cycle, by_sparsity = found.at(cycle=2), found.at(sparsity=0.745)
    assert by_cycle.row == by_sparsity.row == found.rows[2]
    assert State.of(by_cycle.model).digest() == State.of(by_sparsity.model).digest()
    assert by_cycle.mask.num_survivors == 24
    assert int(sum(t.count_nonzero() for name, t in by_cycle.model.named_parameters() if "weight" in name)) == 24
    assert found.at().row == found.rows[-1]
    assert swamp.load(found.directory, sparsity=0.745, model=mlp()).row == found.rows[2]
    assert swamp.Run(found.directory).load(sparsity=0.745, model=mlp()).row == found.rows[2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sparsity": 0.6}, "has no network within 0.015 of sparsity 0.6; it has 0.0000, 0.5000, 0.7500, 0.8750"),
        ({"sparsity": 75}, "sparsity = 75: expected a share of the weights from 0 to below 1, such as 0.75 for 75 %"),
        ({"sparsity": 1}, "such as 0.01 for 1 %"),
        ({"sparsity": float("nan")}, "expected a share"),
        ({"cycle": 9}, "has no cycle 9; it has 0, 1, 2, 3"),
        ({"cycle": 1, "sparsity": 0.5}, "give either a cycle or a sparsity"),
        ({"sparsity": "0.5"}, "sparsity = '0.5': expected a number, such as 0.9"),
    ],
)
def test_a_network_that_is_not_there(found: Pruned, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found.at(**given)
    with pytest.raises(ValueError, match=message):
        swamp.load(found.directory, task=found.task, **given)


def test_best_is_the_sparsest_within_a_point_on_the_validation_split(found: Pruned) -> None:
    chosen = with_values(found, [0.95, 0.97, 0.94, 0.93]).best(within=0.01)
    assert (chosen.row.cycle, chosen.on, chosen.value, chosen.dense) == (2, "validation", 0.94, 0.95)  # 0.95 − 0.94 > 0.01 in floats
    assert with_values(found, [0.95, 0.97, 0.9399, 0.96]).best().row.cycle == 3  # a network in between may be worse
    assert with_values(found, [0.95, 0.90, 0.90, 0.90]).best().row.cycle == 0
    assert with_values(found, [0.95, 0.90, 0.90, 0.90]).best(within=0.05).row.cycle == 3
    stored = f"{100 * chosen.row.metrics['accuracy']:.2f}"
    assert str(chosen).endswith(
        f"accuracy 94.00 % on the validation split, by which it was chosen (dense 95.00), and {stored} on the test split"
    )


def test_best_evaluates_stored_networks_on_the_validation_split(found: Pruned) -> None:
    chosen = found.best(within=0.99)
    assert chosen.row.cycle == 3
    assert chosen.value == found.task.evaluate(found.model, "validation")["accuracy"]
    assert chosen.dense == found.task.evaluate(found.at(cycle=0).model, "validation")["accuracy"]


def test_best_on_the_test_set_must_be_asked_for_and_says_so(tmp_path: Path) -> None:
    found = swamp.prune(mlp, DATA, DATA, out=tmp_path / "run", **SHORT, **HALVED)
    with pytest.raises(ValueError, match=r"no training examples were held out .* validation=0.1, or say on='test'"):
        found.best()
    chosen = found.best(within=0.99, on="test")
    assert (chosen.on, chosen.value) == ("test", found.rows[-1].metrics["accuracy"])
    assert str(chosen).count("on the test split") == 1
    with pytest.raises(ValueError, match="within = 'little': expected a number"):
        found.best(within="little", on="test")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on = 'tset': unknown split; did you mean 'test'"):
        found.best(on="tset")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("within", "message"), [(1, "such as 0.01 for 1 point"), (-0.1, "0 or more"), (float("nan"), "0 or more"), (float("inf"), "0 or more")]
)
def test_a_difference_that_means_nothing(found: Pruned, within: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        found.best(within=within)


def test_best_of_a_loss_is_the_least(tmp_path: Path) -> None:
    targets = X[:, :1] * 2
    found = swamp.prune(regression, (X, targets), (X, targets), validation=20, out=tmp_path / "run", **SHORT, **HALVED)
    loss = [found.task.evaluate(found.at(cycle=row.cycle).model, "validation")["loss"] for row in found.rows]
    for within in (0.0, 0.5, 2.0, 100.0):
        allowed = [cycle for cycle, value in enumerate(loss) if value - loss[0] <= within]
        assert found.best(within=within).row.cycle == allowed[-1]


def test_a_method_without_a_dense_row_has_no_best(tmp_path: Path) -> None:
    found = swamp.prune(mlp, DATA, DATA, out=tmp_path / "run", **{**SHORT, "method": "snip"}, sparsity=0.5)
    with pytest.raises(ValueError, match=r"no dense network to compare with: method 'snip' begins at"):
        found.best(on="test")


def test_export_takes_the_format_from_the_suffix(found: Pruned, tmp_path: Path) -> None:
    lines = found.export(tmp_path / "m.swamp", sparsity=0.5)
    assert lines[0].startswith("cycle 1, 50.00 % sparse")
    assert swamp.load_sparse(tmp_path / "m.swamp", mlp()).mask.digest == found.at(cycle=1).mask.digest
    assert (tmp_path / "m.swamp.md").exists()
    found.export(str(tmp_path / "m.pt"))
    assert torch.load(tmp_path / "m.pt", weights_only=True)["0.weight"].equal(found.model.state_dict()["0.weight"])
    with pytest.raises(ValueError, match=r"is there already; --overwrite replaces it \(in Python overwrite=True\)"):
        found.export(tmp_path / "m.pt")
    found.export(tmp_path / "m.pt", overwrite=True)
    with pytest.raises(ValueError, match=r"the suffix of a format: use one of .*\.onnx \(onnx\).*\.swamp \(sparse\)"):
        found.export(tmp_path / "m.bin")
    with pytest.raises(ValueError, match="values = 'float8': unknown type; did you mean 'float32'"):
        found.export(tmp_path / "n.pt", values="float8")  # type: ignore[arg-type]


def test_report_and_table(found: Pruned, tmp_path: Path) -> None:
    assert found.report(tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert found.report() == found.directory.with_name("mine.html")
    lines = str(found).splitlines()
    assert lines[1].split() == ["cycle", "sparsity", "%", "weights", "accuracy", "%", "NLL"]
    assert lines[5].split()[:3] == ["3", "87.50", "12"]
    assert lines[-1] == f"run: {found.directory}"
    assert repr(found) == f"<Pruned {str(found.directory)!r}: 4 rows, up to 87.50 % sparse>"


def test_a_notebook_shows_a_table_and_no_name_is_markup(found: Pruned) -> None:
    made = copy.copy(found)
    made.rows = [_with_accuracy(row, 0.5) for row in found.rows]
    assert made._repr_html_().count("<tr>") == 5
    assert "<td>87.50</td>" in made._repr_html_()
    made.table = lambda: found.table()._replace(title="<script>")  # type: ignore[method-assign]
    assert "<script>" not in made._repr_html_()


class Heard(swamp.Listener):
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.epochs = self.planned_epochs = 0

    def planned(self, num_epochs: int) -> None:
        self.planned_epochs += num_epochs

    def epoch(self, progress: Progress) -> None:
        self.epochs += progress.trained

    def row(self, result: RowRecord) -> None:
        self.rows.append(result.cycle)


def penalised(model: nn.Module, batch: Any) -> Tensor:
    """A loss with a penalty of the outputs' slopes, which needs gradients where nothing is trained, too."""
    inputs = batch[0].clone().requires_grad_()
    outputs = model(inputs)
    (slopes,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
    return (outputs - batch[1]).square().mean() + slopes.square().mean()


def test_a_loss_of_derivatives_is_averaged_over_and_measured(tmp_path: Path) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))

    data = torch.randn(32, 3), torch.randn(32, 1)
    short: dict[str, Any] = {"engine": "sequential", "ticket": {"epochs": 1}, "cycle": {"epochs": 1}, "pruning": {"prune_fraction": 0.5}}
    found = swamp.prune(make, data, data, loss=penalised, batch_size=16, sparsity=0.5, out=tmp_path / "run", quiet=True, **short)
    assert found.rows[-1].metrics["loss"] == pytest.approx(penalised(found.model.eval(), data).item(), rel=1e-5)


def test_seeds_listener_and_trackers(tmp_path: Path) -> None:
    heard = Heard()
    several = swamp.prune(mlp, DATA, DATA, out=tmp_path / "runs", seeds=(3, 5), listener=heard, trackers=["jsonl"], **SHORT, **HALVED)
    assert [found.directory.name for found in several] == ["seed-3", "seed-5"]
    assert (len(several), several[-1]) == (2, several[1])
    assert (heard.rows, heard.epochs, heard.planned_epochs) == ([0, 1, 2, 3] * 2, 16, 16)
    assert all((found.directory / "tracking" / "jsonl" / "log.jsonl").exists() for found in several)
    alone = swamp.prune(mlp, DATA, DATA, out=tmp_path / "alone", seed=5, **SHORT, **HALVED)
    assert contents(alone.directory) == contents(several[1].directory)
    accuracies = torch.tensor([found.rows[-1].metrics["accuracy"] for found in several], dtype=torch.double) * 100
    lines = str(several).splitlines()
    assert f"{accuracies.mean():.2f} ± {accuracies.std():.2f}" in lines[5]
    assert lines[5].split()[:3] == ["3", "87.50", "12"]  # All seeds have the same sparsity, which has no deviation.
    assert "seeds 3, 5" in lines[-2]
    assert "<td>" in several._repr_html_()
    assert several.report().read_text().count("seed-5")
    with pytest.raises(ValueError, match=r"runs holds several runs \(seed-3, seed-5\); load one of them"):
        swamp.load(tmp_path / "runs", model=mlp())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": []}, r"seeds = \[\]: expected different whole numbers"),
        ({"seeds": [1, 1]}, "expected different whole numbers"),
        ({"seeds": 3}, "seeds = 3: expected different"),
        ({"seeds": "01"}, "seeds = '01': expected different"),
        ({"seeds": [0], "seed": 1}, "give either seed or seeds"),
        ({"seeds": [0.5]}, "seed = 0.5: expected an integer"),
        ({"trackers": ["jsnol"]}, "unknown tracker 'jsnol'; did you mean 'jsonl'"),
        ({"trackers": "jsnol"}, "unknown tracker 'jsnol'"),
        ({"sparsity": 90}, "such as 0.9 for 90 %"),
        ({"optimizer": "adamw"}, r"optimizer is a str, not a function .*: optimizer=\{\"name\": 'adamw'\}"),
        (
            {"optimizer": torch.optim.SGD(mlp().parameters())},
            "optimizer holds the parameters of one model, and each training has its own: give a function",
        ),
        ({"optimizer": torch.optim.SGD, "schedule": "cosine"}, "schedule is a str, not a function"),
        ({"exclude": "*"}, r"exclude = '\*': expected a list, such as \['\*'\]"),
        ({"prunable": "linear"}, r"prunable = 'linear': expected a list, such as \['linear'\]"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        swamp.prune(mlp, DATA, DATA, out=tmp_path / "run", **{**SHORT, **given})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"lr": 0.1}, 'cycle={"learning_rate": …}'),
        ({"epochs": 3}, 'cycle={"epochs": …}'),
        ({"target_sparsity": 0.9}, "sparsity=…"),
        ({"sparsty": 0.9}, "sparsity=…"),
        ({"num_particles": 4}, 'methods={"swamp": {"particles": …}}'),
        ({"tracker": "jsonl"}, "trackers=…"),
        ({"callbacks": []}, "listener=…"),
        ({"batchsize": 4}, "batch_size=…"),
        ({"gpu": 0}, "device=…"),
        ({"cylce": {"epochs": 3}}, "cycle=…"),
        ({"weight_decay": 0}, 'optimizer={"weight_decay": …}'),
    ],
)
def test_unknown_keywords_get_the_right_hint(given: dict[str, Any], hint: str) -> None:
    (name,) = given
    with pytest.raises(ValueError, match="unknown setting") as caught:
        swamp.prune(mlp, DATA, DATA, **given)
    assert str(caught.value).startswith(f"unknown setting {name!r}; did you mean {hint}?")


def test_run_and_rows_know_their_own_keywords() -> None:
    for function in (swamp.run, lambda *recipe, **given: list(swamp.rows(*recipe, **given))):
        with pytest.raises(ValueError, match=r"unknown setting 'lr'; did you mean cycle=\{\"learning_rate\": …\}"):
            function("digits", lr=0.1)
        with pytest.raises(ValueError, match=r"unknown setting 'batch_size'; did you mean tasks=\{\"image\""):
            function("digits", batch_size=3)
    with pytest.raises(ValueError, match=r"unknown setting 'zzzzz' \(all of them"):
        swamp.run("digits", zzzzz=3)


class Net(nn.Module):
    def __init__(self, outputs: int = 2, name: str = "head") -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        setattr(self, name, nn.Linear(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x)).relu())  # type: ignore[no-any-return, operator]


def test_a_network_is_loaded_into_a_given_model_without_data(tmp_path: Path) -> None:
    found = swamp.prune(Net, DATA, DATA, out=tmp_path / "run", **SHORT, sparsity=0.75)
    with pytest.raises(ValueError, match="--task module:function"):
        swamp.load(tmp_path / "run")
    model = Net()
    for loaded in (swamp.load(tmp_path / "run", model=model), swamp.Run(tmp_path / "run").load(model=model)):
        assert loaded.model is model
        assert not model.training
        assert loaded.mask.digest == found.mask.digest
        assert State.of(model).digest() == State.of(found.model).digest()  # buffers too
    dense = swamp.load(tmp_path / "run", cycle=0, model=Net())
    assert dense.mask.num_survivors == 48
    with pytest.raises(ValueError, match=r"model = <class .*Net'>: expected a module, such as Net\(\)"):
        swamp.load(tmp_path / "run", model=Net)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give either model= or task="):
        swamp.load(tmp_path / "run", model=model, task=found.task)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Net(3), r"the given Net is not the model of .*run: head.weight has shape 3 × 8 there, and 2 × 8 is stored"),
        (Net(name="top"), r"it has no 'head\.\w+' \(nor 1 more\), but 'top.weight'"),
        (nn.Sequential(Net()), r"it has no '\w+\.\w+' \(nor 8 more\), but '0\."),
    ],
)
def test_a_model_that_does_not_fit_is_refused_and_not_changed(model: nn.Module, message: str, found: Pruned, tmp_path: Path) -> None:
    swamp.prune(Net, DATA, DATA, out=tmp_path / "run", **SHORT, pruning={"cycles": 0})
    before = State.of(model).digest()
    with pytest.raises(ValueError, match=message):
        swamp.load(tmp_path / "run", model=model)
    assert State.of(model).digest() == before


def test_packages_are_reachable_after_import() -> None:
    assert swamp.tasks.metrics.classification_metrics(torch.eye(2), torch.arange(2))["accuracy"] == 1
    assert callable(swamp.export.narrow.shaped_like)
    with pytest.raises(AttributeError, match=r"module 'swamp.tasks' has no attribute 'nonsense'"):
        _ = swamp.tasks.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_labels_may_be_of_any_whole_number_type(kind: torch.dtype, found: Pruned, tmp_path: Path) -> None:
    data = X, DATA[1].to(kind)
    other = swamp.prune(mlp, data, data, out=tmp_path / "run", validation=0.25, **SHORT, **HALVED)
    assert [row.metrics for row in other.rows] == [row.metrics for row in found.rows]
    assert [row.notes for row in other.rows] == [row.notes for row in found.rows]


def test_tables_say_which_numbers_mean_little(tmp_path: Path) -> None:
    limited = swamp.prune(mlp, DATA, DATA, out=tmp_path / "limited", limit_examples=20, **SHORT, pruning={"cycles": 1})
    assert "at most 20 examples of each split" in str(limited).splitlines()
    labels = torch.arange(80) % 2
    tried = swamp.prune(mlp, (X, labels), (X, labels), out=tmp_path / "fast", fast=True, seeds=[0, 1], **SHORT)
    assert "one batch of each split: these numbers mean nothing" in str(tried).splitlines()
    assert all(note in str(tried) for one in tried for row in one.rows for note in row.notes or ())
    assert "these numbers mean nothing" in tried._repr_html_()


@pytest.mark.parametrize(
    ("name", "given", "maximise"), [("rmse", None, False), ("Test_error", None, False), ("r2", None, True), ("mae", True, True)]
)
def test_the_name_of_a_metric_says_whether_less_is_better(name: str, given: bool | None, maximise: bool) -> None:
    task = swamp.CustomTask(mlp, DATA, DATA, metric=lambda outputs, targets: {name: 1.0}, maximise=given)
    assert task.metrics[name].maximise is maximise


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = swamp.prune(mlp, DATA, DATA, out="~/run", pruning={"cycles": 0}, **SHORT)
    found.export("~/net.pt")
    found.report("~/page.html")
    swamp.load("~/run", model=mlp())
    assert {"run", "net.pt", "page.html"} <= {path.name for path in tmp_path.iterdir()}
    assert not list((tmp_path / "work").iterdir())
