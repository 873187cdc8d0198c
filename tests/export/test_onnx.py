from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import onnx
import pytest
import torch
from torch import nn

from swamp.export.formats import onnx as exporting
from swamp.export.formats.onnx import Mismatch, OnnxNetwork, Unsupported, as_onnx, check
from swamp.tasks.custom import CustomTask


class Folding(nn.Module):
    """A norm that can be folded, and one that follows a sum and cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.last = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.last(self.bn(self.conv(x)).relu() + x).relu().mean((2, 3)))


@pytest.fixture(scope="module")
def task() -> CustomTask:
    torch.manual_seed(0)
    data = torch.randn(40, 1, 6, 6), torch.arange(40) % 3
    model = Folding().train()
    for _ in range(3):
        model(data[0] * 2 + 1)  # statistics other than 0 and 1
    return CustomTask(model, data, data)


def test_the_graph_computes_the_same_for_any_batch(task: CustomTask) -> None:
    model = task.model().eval()
    content = as_onnx(model, task, {"x": 1})
    for size in (1, 2, 7):
        x = torch.randn(size, 1, 6, 6)
        torch.testing.assert_close(OnnxNetwork(content)(x), model(x).detach(), atol=1e-5, rtol=1e-4)
    found = check(content, model, task)
    assert found.largest_difference is not None
    assert found.largest_difference < 1e-5
    assert found.torch_metrics["accuracy"] == found.onnx_metrics["accuracy"]
    graph = onnx.load_from_string(content)
    makers = {output: node.op_type for node in graph.graph.node for output in node.output}
    norms = [makers.get(node.input[0]) for node in graph.graph.node if node.op_type == "BatchNormalization"]
    assert norms == ["Add"]
    assert [(entry.key, entry.value) for entry in graph.metadata_props] == [("swamp", '{"x":1}')]
    assert os.path.dirname(exporting.__file__).encode() not in content
    assert as_onnx(model, task, {"x": 1}) == content


def test_a_graph_of_other_weights_is_noticed(task: CustomTask) -> None:
    model = task.model().eval()
    content = as_onnx(model, task, {})
    nn.init.ones_(model.classifier.weight)  # type: ignore[arg-type]
    with pytest.raises(Mismatch, match="differ from torch's by up to"):
        check(content, model, task)


class Deciding(nn.Module):
    """What it computes depends on its input in a way that no graph can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x if float(x.detach().sum()) > 0 else -x)


class Counting(nn.Module):
    """Makes a Python number of the batch size, which torch takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.token = nn.Linear(4, 3), nn.Parameter(torch.zeros(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x + self.token.expand(len(x), -1))


def test_a_graph_for_one_batch_size_is_refused() -> None:
    data = torch.randn(8, 4), torch.arange(8) % 3
    task = CustomTask(Counting, data, data)
    with pytest.raises(Unsupported, match=r"^its graph would take only batches of two examples: .* x\.shape\[0\], not len\(x\)"):
        as_onnx(task.model(), task, {})


class Telling(nn.Linear):
    """Returns its input, too."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return super().forward(x), 2 * x


def test_a_graph_of_several_outputs_is_refused() -> None:
    data = torch.randn(8, 4), torch.arange(8) % 3
    task = CustomTask(lambda: Telling(4, 3), data, data, loss=lambda model, batch: model(batch[0])[0].square().mean())
    with pytest.raises(Unsupported, match=r"^a network for ONNX returns one tensor, and this one returns 2: "):
        as_onnx(task.model(), task, {})


def test_a_metric_that_cannot_be_computed_with_the_graph_gets_a_sentence() -> None:
    data = torch.randn(8, 4), torch.arange(8) % 3

    def metric(model: nn.Linear, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"accuracy": (model(batch[0]).argmax(1) == batch[1]).double().mean(), "size": model.weight.norm()}

    task = CustomTask(lambda: nn.Linear(4, 3), data, data, metric=metric)
    with pytest.raises(Unsupported, match=r"^the graph takes one tensor and returns one, and the metric of its task cannot be computed"):
        check(as_onnx(task.model(), task, {}), task.model(), task)


def compiled(model: nn.Module) -> nn.Module:
    """Wrap a model as torch.compile does. The code that it would be translated to takes ten seconds and is no part of the wrapper."""
    return cast(nn.Module, torch.compile(model, backend="eager"))


@pytest.mark.filterwarnings("ignore:.*deprecated")  # of torch's own parts, by its compiler
@pytest.mark.parametrize("wrapped", [nn.DataParallel, compiled])
def test_a_wrapper_that_takes_any_inputs_is_written_for_any_batch(wrapped: Callable[[nn.Module], nn.Module]) -> None:
    data = torch.randn(8, 4), torch.arange(8) % 3
    task = CustomTask(wrapped(nn.Linear(4, 3)), data, data)
    content = as_onnx(task.model(), task, {})
    torch.testing.assert_close(OnnxNetwork(content)(data[0][:5]), task.model()(data[0][:5]).detach())


class Cast(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x)


def test_a_graph_that_is_not_valid_gets_one_sentence() -> None:
    data = torch.randn(8, 4), torch.arange(8) % 3
    task = CustomTask(lambda: Cast(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), data, data)
    with pytest.raises(Unsupported, match=r"^the graph that torch wrote of this network is not valid: .+") as refused:
        as_onnx(task.model(), task, {})
    assert len(str(refused.value).splitlines()) == 1


def test_networks_that_are_no_graphs_get_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    labels = torch.arange(8) % 3
    deciding = CustomTask(Deciding, (torch.ones(8, 4), labels), (torch.ones(8, 4), labels))
    with pytest.raises(Unsupported, match=r"^torch cannot write this network as an ONNX graph: .+") as refused:
        as_onnx(deciding.model(), deciding, {})
    assert len(str(refused.value).splitlines()) == 1
    assert capfd.readouterr() == ("", "")  # torch would print the graph as far as it came
    images = torch.ones(8, 1, 4, 4).double(), labels
    double = CustomTask(lambda: nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten()).double(), images, images)
    with pytest.raises(Unsupported, match=r"^onnxruntime cannot run this graph: .+"):
        check(as_onnx(double.model(), double, {}), double.model(), double)


def test_a_network_of_texts_takes_any_batch_and_length(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from swamp.tasks.text import Config, TextTask
    from tests.support.made_up_text import write_checkpoint, write_glue

    folder = write_checkpoint(tmp_path / "bert")
    task = TextTask(Config(dataset="rte", data=str(write_glue(tmp_path)), model=str(folder), max_length=32))
    model = task.model().eval()
    content = as_onnx(model, task, {})
    graph = OnnxNetwork(content)
    for size, length in ((1, 1), (1, 9), (5, 32)):
        inputs = {name: torch.randint(0, 2, (size, length)) for name in ("input_ids", "token_type_ids", "attention_mask")}
        inputs["attention_mask"][:, 0] = 1  # and some of the rest is padding
        torch.testing.assert_close(graph(**inputs).logits, model(**inputs).logits.detach(), atol=1e-5, rtol=1e-4)
    found = check(content, model, task)
    assert found.largest_difference is not None
    assert found.torch_metrics["accuracy"] == found.onnx_metrics["accuracy"]
