"""One contract over many kinds of models: each is pruned, resumed in a new process, loaded and exported."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import swamp
from swamp.core.state import State
from swamp.export.formats import export
from swamp.export.formats.onnx import OnnxNetwork, as_onnx
from tests.support.compiling import COMPILER
from tests.support.listeners import Watcher
from tests.support.own_models import CASES
from tests.support.own_models.case import Case
from tests.support.runs import contents

ROOT = Path(__file__).parents[2]
TAKEN = tuple(case for case in CASES if not case.refused)
ONNX_AT_ONCE = ("cnn_batchnorm", "group_norm", "siamese")  # one graph takes seconds; the others are in `make test-slow`


class FirstRow(Watcher):
    """Counts epochs, and calls a function when the first row is on disk. A copy that it makes is what a kill would leave then."""

    def __init__(self, at_first: Callable[[], Any]) -> None:
        super().__init__()
        self.at_first, self.at_first_row = at_first, 0

    def row(self, result: swamp.RowRecord) -> None:
        if not self.at_first_row:
            self.at_first()
            self.at_first_row = self.trained


class Zoo:
    """The runs of all cases. Each is made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: dict[str, swamp.Pruned | Exception] = {}
        self.left: dict[str, int] = {}  # epochs that were still to be trained when the first row was finished

    def found(self, case: Case) -> swamp.Pruned:
        """Return what `swamp.prune` found, or raise what it raised."""
        if case.name not in self.results:
            try:
                self.results[case.name] = self._prune(case)
            except Exception as error:
                self.results[case.name] = error
        result = self.results[case.name]
        if isinstance(result, Exception):
            raise result
        return result

    def _prune(self, case: Case) -> swamp.Pruned:
        whole, half = (self.folder / name / case.name for name in ("whole", "half"))
        watcher = FirstRow(lambda: shutil.copytree(whole, half, symlinks=True))
        found = case.prune(whole, watcher)
        self.left[case.name] = watcher.trained - watcher.at_first_row
        return found

    @cached_property
    def stored(self) -> dict[str, dict[str, int]]:
        """When each object of the half-finished runs was written."""
        return {case.name: times(self.folder / "half" / case.name) for case in TAKEN}

    @cached_property
    def resumed(self) -> dict[str, Any]:
        """What the process said that went on with all half-finished runs."""
        for case in TAKEN:
            try:
                self.found(case)
            except Exception:
                continue
        _ = self.stored
        line = [sys.executable, "-m", "tests.support.own_models.resume", str(self.folder / "half")]
        child = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
        assert child.returncode == 0, child.stderr
        return dict(json.loads(child.stdout.splitlines()[-1]))


def times(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (directory / "objects").glob("*")}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    torch.manual_seed(0)
    return Zoo(tmp_path_factory.mktemp("zoo"))


def cases(chosen: tuple[Case, ...] = TAKEN) -> pytest.MarkDecorator:
    """Parametrize a test over cases."""
    return pytest.mark.parametrize("case", chosen, ids=[case.name for case in chosen])


@cases()
def test_prune_finds_what_a_hand_would_compute(zoo: Zoo, case: Case) -> None:
    found = zoo.found(case)
    assert isinstance(found.model, type(case.model()))
    weights = dict(found.model.named_parameters())
    assert set(case.pruned) <= found.mask.layers.keys() <= weights.keys()
    assert all(not weights[name][~layer].any() for name, layer in found.mask.layers.items())
    total = sum(layer.numel() for layer in found.mask.layers.values())
    assert [row.num_survivors for row in found.rows] == [total, total - total // 2]
    assert found.mask.num_survivors == found.rows[-1].num_survivors
    last = found.rows[-1]
    with torch.no_grad():
        assert last.metrics[last.metric] == pytest.approx(case.expected(found.model, case.batch()), abs=1e-5)
    case.check(found)


@cases(tuple(case for case in CASES if case.refused))
def test_what_cannot_be_pruned_gets_one_sentence_before_anything_is_written(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as refused:
        case.prune(tmp_path / "run")
    assert str(refused.value).startswith(case.refused)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@cases()
def test_the_same_script_in_a_new_process_goes_on(zoo: Zoo, case: Case) -> None:
    zoo.found(case)
    assert zoo.left[case.name] > 0
    assert zoo.resumed[case.name] == {"epochs": zoo.left[case.name]}
    half = zoo.folder / "half" / case.name
    assert zoo.stored[case.name].items() <= times(half).items()  # nothing that was there was written again
    assert contents(half) == contents(zoo.folder / "whole" / case.name)


@cases()
def test_load_gives_the_same_network(zoo: Zoo, case: Case) -> None:
    found = zoo.found(case)
    task = case.task()
    last, first = swamp.load(found.directory, task=task), swamp.load(found.directory, cycle=0, task=task)
    assert tensors(last.model).keys() == tensors(found.model).keys()
    assert all(torch.equal(tensor, tensors(found.model)[name]) for name, tensor in tensors(last.model).items())
    assert all(torch.equal(layer, found.mask.layers[name]) for name, layer in last.mask.layers.items())
    assert (first.row, last.row) == (found.rows[0], found.rows[-1])
    assert (first.row.sparsity, all(layer.all() for layer in first.mask.layers.values())) == (0.0, True)


@pytest.mark.usefixtures("compiled_runtime" if COMPILER else "zoo")  # Where there is a runtime, the file is compared in it, too.
@cases()
def test_exported_files_compute_the_same(zoo: Zoo, case: Case, tmp_path: Path) -> None:
    found, task = zoo.found(case), case.task()
    for name in ("sparse", "safetensors", "torch"):
        (tmp_path / name).write_bytes(export(State.of(found.model), found.mask, task, name, "float32", {}).content)
    sparse = swamp.load_sparse(tmp_path / "sparse", new_model(case))
    assert sparse.mask.num_survivors == found.mask.num_survivors
    others = {
        "safetensors": safetensors.torch.load_file(tmp_path / "safetensors"),
        "torch": torch.load(tmp_path / "torch", weights_only=True),
    }
    expected = outputs(case, found.model)
    same(outputs(case, sparse.model), expected)
    for loaded in others.values():
        model = new_model(case)
        model.load_state_dict(loaded)
        same(outputs(case, model), expected)


@cases(tuple(case for case in TAKEN if case.name in ONNX_AT_ONCE))
def test_some_graphs_compute_the_same(zoo: Zoo, case: Case) -> None:
    check_graph(zoo, case)


@pytest.mark.slow
@cases()
def test_all_graphs_compute_the_same(zoo: Zoo, case: Case) -> None:
    check_graph(zoo, case)


def check_graph(zoo: Zoo, case: Case) -> None:
    """Check that the network's ONNX graph computes what the network does, or that there is none for the reason that is given."""
    model, task = zoo.found(case).model, case.task()
    if case.no_onnx:
        with pytest.raises(ValueError) as refused:
            as_onnx(model, task, {})
        assert str(refused.value).startswith(case.no_onnx)
        assert "\n" not in str(refused.value)
        return
    graph = OnnxNetwork(as_onnx(model, task, {}))
    (expected,) = pytree.tree_leaves(outputs(case, model))
    torch.testing.assert_close(case.forward(graph, case.batch()), expected, atol=1e-5, rtol=1e-4)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def outputs(case: Case, model: nn.Module) -> Any:
    with torch.no_grad():
        return case.forward(model, case.batch())


def new_model(case: Case) -> nn.Module:
    """Return an untrained model, called once, so that lazy modules have weights."""
    model = case.model().eval()
    outputs(case, model)
    return model


def same(found: Any, expected: Any) -> None:
    (a, form), (b, wanted) = pytree.tree_flatten(found), pytree.tree_flatten(expected)
    assert form == wanted
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len({case.name for case in CASES}) == len({case.shows for case in CASES}) == len(CASES) >= 25


def test_the_table_in_the_documentation_has_every_case() -> None:
    with_models = runpy.run_path(str(ROOT / "docs" / "tested_models.py"))["with_models"]
    page = (ROOT / "docs" / "custom.md").read_text()
    assert page == with_models(page), "write the table in docs/custom.md anew: python docs/tested_models.py"
