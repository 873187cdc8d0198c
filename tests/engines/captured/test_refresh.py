"""The captured pass over the data gives the BatchNorm statistics and points of a pass batch by batch. Only GPUs really capture it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.engines.captured import refresh
from swamp.engines.captured.refresh import Averager, CapturedRefresh, capture_refresh
from swamp.landscape import point
from swamp.landscape.hessian import Hessian, lanczos, probe_traces
from swamp.landscape.point import EvaluationSetup, PointEvaluator, combined, measured, subset
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.task import dense_mask
from swamp.training.averaging import averaged_state
from swamp.training.numerics import applied
from tests.support.blobs import Blobs, Net
from tests.support.trainings import BlobsOnDevice, EagerGraphStream, UncapturableBlobs

CPU = torch.device("cpu")


def digits(**settings: Any) -> ImageTask:
    return ImageTask(Config(flip=True, **settings))


@pytest.mark.parametrize(("task", "precision"), [(Blobs(dropout=0.5), "float32"), (Blobs(batch_size=10), "float32"), (digits(), "bf16")])
def test_a_captured_pass_gives_the_statistics_of_an_eager_one_at_any_weights(
    task: Any, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "GraphStream", EagerGraphStream)
    numerics = Numerics(precision=precision)
    model = task.model()
    one = CapturedRefresh(task, model, Noise(5), numerics, CPU)
    for seed in (1, 2):  # The first run must not affect the second.
        state = task.init(Noise(seed))
        state.into(model)
        one.run()
        expected = averaged_state(task, state.parameters, state.buffers, Noise(5), numerics, CPU)
        found = State.of(model)
        assert not model.training
        for name, tensor in expected.buffers.items():
            assert torch.allclose(found.buffers[name].float(), tensor.float(), rtol=1e-4, atol=1e-5), name
        assert all(torch.equal(found.parameters[name], state.parameters[name]) for name in state.parameters)


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_one_averager_computes_several_averages(where: str, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "cpu":
        monkeypatch.setattr(refresh, "GraphStream", EagerGraphStream)
    task, numerics, device = digits(), Numerics(precision=precision), torch.device(where)
    start = task.init(Noise(0))
    with applied(numerics):
        averager = Averager(task, Noise(9), numerics, device)
        assert averager.refresh is not None
        for seed in (1, 2, 1):
            parameters = {name: tensor.to(device) for name, tensor in task.init(Noise(seed)).parameters.items()}
            found = averager(parameters, start.buffers, Noise(seed))
            expected = averaged_state(task, parameters, start.buffers, Noise(seed), numerics, device)
            other = averaged_state(task, parameters, start.buffers, Noise(3), numerics, device)
            assert found.parameters["stem.weight"].is_contiguous()
            assert all(torch.equal(found.parameters[name], expected.parameters[name]) for name in parameters)
            limit = 1e-5 if precision == "float32" else 1e-2
            for name, tensor in expected.buffers.items():
                assert (found.buffers[name] - tensor).double().norm() <= limit * tensor.double().norm()
            moved = [(other.buffers[name] - tensor).double().norm() / tensor.double().norm() for name, tensor in expected.buffers.items()]
            assert max(moved) > 1e-4


class Noisy(Net):
    """Draws at random in front of its BatchNorm layer, in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.randn_like(x))


def test_what_a_model_draws_in_the_pass_follows_from_the_noise(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlobsOnDevice, "model", lambda self: Noisy(0.0))
    task, numerics = BlobsOnDevice(), Numerics()
    averager = Averager(task, Noise(9), numerics, device)
    assert averager.refresh is not None
    start = task.init(Noise(0))
    parameters = {name: tensor.to(device) for name, tensor in start.parameters.items()}
    found = []
    for seed in (1, 2, 1):
        average = averager(parameters, start.buffers, Noise(seed))
        expected = averaged_state(task, parameters, start.buffers, Noise(seed), numerics, device)
        assert torch.allclose(average.buffers["bn.running_var"], expected.buffers["bn.running_var"], rtol=1e-4)
        found.append(average.buffers["bn.running_var"].cpu())
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1], rtol=1e-2)


def test_points_do_not_affect_later_points() -> None:
    task = Blobs()
    setting = EvaluationSetup(task, Noise(1), Numerics(), CPU)
    batches = subset(setting)
    first, second = task.init(Noise(1)), task.init(Noise(2))
    evaluator = PointEvaluator(setting, batches)
    for share in (0.0, 0.5, 1.0, 0.5):
        weights = combined([first, second], [1 - share, share])
        assert evaluator(weights, first.buffers) == measured(setting, weights, first.buffers, batches)


def test_a_pass_that_cannot_be_captured_is_made_batch_by_batch_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(EagerGraphStream):
        def capture(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setattr(refresh, "GraphStream", Refusing)
    model = Blobs().model()
    momentum = model.bn.momentum
    assert capture_refresh(Blobs(), model, Noise(0), Numerics(), CPU) is None
    assert "(operation not permitted when stream is capturing); it is made batch by batch" in caplog.text
    assert model.bn.momentum == momentum
    assert not model.bn.training


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_on_a_gpu_points_are_those_of_the_cpu(precision: Any) -> None:
    task = digits()
    first, second = task.init(Noise(1)), task.init(Noise(2))
    middle = combined([first, second], [0.5, 0.5])
    found = []
    for device in (CPU, torch.device("cuda")):
        setting = EvaluationSetup(task, Noise(3), Numerics(precision=precision), device)
        evaluator = PointEvaluator(setting, subset(setting))
        assert (evaluator.refresh is not None) == (device.type == "cuda")
        found.append([evaluator(weights, first.buffers) for weights in (first.parameters, middle, first.parameters)])
    for ours, theirs in zip(*found, strict=True):
        for name, value in ours.items():
            assert theirs[name] == pytest.approx(value, rel=1e-3 if precision == "float32" else 0.03, abs=0.01)
    assert found[1][0] == pytest.approx(found[1][2], rel=1e-4)


@pytest.mark.gpu
def test_on_a_gpu_a_loss_that_cannot_be_captured_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = UncapturableBlobs()
    device = torch.device("cuda")
    assert capture_refresh(task, task.model().to(device), Noise(0), Numerics(), device) is None
    assert "cannot be captured as a CUDA graph" in caplog.text


@pytest.mark.gpu
def test_on_a_gpu_the_hessian_is_that_of_the_cpu_in_float32_without_tf32() -> None:
    task = digits()
    state = task.init(Noise(1))
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    found = []
    for device in (CPU, torch.device("cuda")):
        setting = EvaluationSetup(task, Noise(3), Numerics(precision="bf16"), device, num_examples=200)
        hessian = Hessian(task, state, dense_mask(task), subset(setting), device, setting.numerics)
        traces = probe_traces(hessian, hessian.size, Noise(0), 0, 3)
        found.append((traces, lanczos(hessian, hessian.size, Noise(0), 15).nodes[-1]))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-3)
    assert before == (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)


def test_batches_are_larger_on_gpus() -> None:
    assert point.AT_ONCE["cpu"] < point.AT_ONCE["cuda"]
    task = digits()
    assert max(len(y) for _, y in subset(EvaluationSetup(task, Noise(0), Numerics(), CPU, 300))) == point.AT_ONCE["cpu"]
