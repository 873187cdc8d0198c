"""The Hessian against an explicit one, and its estimators against spectra that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from swamp.core.job import Numerics
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.landscape import hessian as module
from swamp.landscape.hessian import Hessian, lanczos, probe_traces, spectral_density, trace_of
from swamp.tasks.custom import CustomTask
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.task import dense_mask
from tests.support.blobs import Blobs

CPU = torch.device("cpu")


@pytest.fixture(params=["backwards", "forwards"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How gradients are differentiated; a GPU's way works on a CPU too."""
    monkeypatch.setattr(module, "FORWARDS_ON", ("cpu",) if request.param == "forwards" else ())
    return str(request.param)


def explicit(task: Blobs, state: State) -> Tensor:
    """All second derivatives of the mean loss over all examples, by torch's own hessian of a function of one flat vector."""
    model = task.model().eval()
    state.into(model)
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([math.prod(shape) for shape in shapes])
        given = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        outputs = torch.func.functional_call(model, given, (task.x,))
        return nn.functional.cross_entropy(outputs, task.y)

    return torch.autograd.functional.hessian(loss, torch.cat([p.detach().reshape(-1) for p in model.parameters()]))


def blobs_with_mask() -> tuple[Blobs, State, Mask]:
    task = Blobs(dropout=0.5)  # which must be off
    state = task.init(Noise(3))
    buffers = {**state.buffers, "bn.running_mean": torch.linspace(-1, 1, 8), "bn.running_var": torch.linspace(0.5, 2, 8)}
    mask = Mask({"first.weight": torch.arange(32).reshape(8, 4) % 3 > 0, "last.weight": torch.arange(16).reshape(2, 8) % 4 > 0})
    return task, mask.apply(State(state.parameters, buffers)), mask


@pytest.mark.usefixtures("way")
def test_products_are_those_of_the_explicit_hessian_in_the_surviving_coordinates(caplog: pytest.LogCaptureFixture) -> None:
    task, state, mask = blobs_with_mask()
    full = explicit(task, state)
    everything = [mask.layers.get(name, torch.ones_like(tensor, dtype=torch.bool)) for name, tensor in state.parameters.items()]
    alive = torch.cat([layer.reshape(-1) for layer in everything])
    batches = [task.unaugmented(rows, CPU) for rows in torch.arange(10).split(4)]  # ragged: batches must be weighted by their size
    hessian = Hessian(task, state, mask, batches, CPU, Numerics())
    before = torch.get_rng_state(), torch.get_num_threads()
    assert hessian.size == int(alive.sum()) < len(alive)
    found = hessian(torch.eye(hessian.size))
    assert torch.allclose(found, full[alive][:, alive], atol=1e-6)
    assert found.abs().max() > 0.05
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == torch.get_num_threads()
    after = State.of(hessian.model)
    assert after.digest() == state.digest()
    assert not caplog.records


def test_networks_with_convolutions_are_differentiated_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ImageTask(Config())
    state = task.init(Noise(0))
    batches = [task.unaugmented(torch.arange(20), CPU)]
    found = []
    for where in ((), ("cpu",)):
        monkeypatch.setattr(module, "FORWARDS_ON", where)
        hessian = Hessian(task, state, dense_mask(task), batches, CPU, Numerics())
        assert hessian.forwards == bool(where)
        found.append(hessian(torch.randn(2, hessian.size, generator=torch.Generator().manual_seed(1))))
        assert hessian.forwards == bool(where)
    assert (found[0] - found[1]).norm() < 1e-5 * found[0].norm()


class Squared(torch.autograd.Function):
    """Its writer thought of gradients, and of nothing else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * slope  # type: ignore[no-any-return]


def test_what_cannot_be_differentiated_forwards_is_said_once_and_done_backwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Custom(Blobs):
        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            return nn.functional.cross_entropy(Squared.apply(model(batch[0])), batch[1])

    _, state, mask = blobs_with_mask()
    task = Custom()
    batches = [task.unaugmented(rows, CPU) for rows in torch.arange(10).split(5)]
    backwards = Hessian(task, state, mask, batches, CPU, Numerics())
    monkeypatch.setattr(module, "FORWARDS_ON", ("cpu",))
    hessian = Hessian(task, state, mask, batches, CPU, Numerics())
    vectors = torch.eye(hessian.size)[:3]
    assert torch.equal(hessian(vectors), backwards(vectors))
    hessian(vectors)
    (record,) = caplog.records
    assert "cannot be differentiated forwards (" in record.message


def test_a_batch_that_does_not_fit_into_memory_is_divided(way: str) -> None:
    class Small(Blobs):
        """A device whose memory holds three examples."""

        asked: list[int] = []  # noqa: RUF012

        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            self.asked.append(len(batch[1]))
            if len(batch[1]) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().loss(model, batch)

    task, state, mask = blobs_with_mask()
    batches = [task.unaugmented(rows, CPU) for rows in torch.arange(10).split(8)]
    vectors = torch.eye(Hessian(task, state, mask, batches, CPU, Numerics()).size)[:5]
    small = Small(dropout=0.5)
    hessian = Hessian(small, state, mask, batches, CPU, Numerics())
    assert torch.allclose(hessian(vectors), Hessian(task, state, mask, batches, CPU, Numerics())(vectors), atol=1e-6)
    times = 5 if way == "forwards" else 1  # the loss of each batch is asked for
    done = [2] * times
    assert small.asked == [8, 4, *done, *done, 4, *done, *done, *done]
    small.asked.clear()
    hessian(vectors)
    assert small.asked == done * 5  # what was learnt is kept
    assert len(batches) == 2  # and is nobody else's business

    class Full(Blobs):
        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        Hessian(Full(), state, mask, batches, CPU, Numerics())(vectors)


def test_memory_that_runs_out_within_a_scripted_rule_is_no_reason_to_go_backwards(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As BatchNorm's rule for forward differentiation is: errors in it are the script's."""

    class Small(Blobs):
        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            if len(batch[1]) > 3:
                raise RuntimeError("The progress operation failed in the TorchScript interpreter.\nRuntimeError: CUDA out of memory")
            return super().loss(model, batch)

    monkeypatch.setattr(module, "FORWARDS_ON", ("cpu",))
    _, state, mask = blobs_with_mask()
    task = Small(dropout=0.5)
    hessian = Hessian(task, state, mask, [task.unaugmented(torch.arange(10), CPU)], CPU, Numerics())
    hessian(torch.eye(hessian.size)[:1])
    assert hessian.forwards
    assert [len(batch[1]) for batch in hessian.batches] == [2, 3, 2, 3]
    assert not caplog.records


def test_trace_and_top_eigenvalue_of_the_small_network() -> None:
    task, state, mask = blobs_with_mask()
    hessian = Hessian(task, state, mask, [task.unaugmented(torch.arange(10), CPU)], CPU, Numerics())
    matrix = hessian(torch.eye(hessian.size)).double()
    chunks = (probe_traces(hessian, hessian.size, Noise(0), first, 20) for first in range(0, 800, 20))
    trace = trace_of(chunks, tolerance=0.12)
    assert trace.converged
    assert abs(trace.mean - float(matrix.trace())) < 4 * trace.standard_error
    top = torch.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]
    found = lanczos(hessian, hessian.size, Noise(0), 30)
    assert found.nodes[-1] == pytest.approx(float(top), rel=1e-4)


@pytest.fixture(scope="module")
def quadratic() -> tuple[Tensor, Tensor]:
    """A symmetric matrix of known eigenvalues: a bulk, two above it and one below."""
    values = torch.cat([torch.linspace(0, 1, 197), torch.tensor([-3.0, 8.0, 20.0])]).double()
    directions = torch.linalg.qr(torch.randn(200, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    return (directions * values) @ directions.T, values


def test_hutchinson_on_a_known_spectrum_stops_at_its_standard_error(quadratic: tuple[Tensor, Tensor]) -> None:
    matrix, values = quadratic
    asked: list[int] = []

    def chunk(first: int) -> list[float]:
        asked.append(first)
        return probe_traces(lambda v: v.double() @ matrix, 200, Noise(5), first, 10)

    trace = trace_of(map(chunk, range(0, 1000, 10)), tolerance=0.02)
    assert trace.converged
    assert trace.num_probes == 10 * len(asked) < 1000
    assert trace.standard_error <= 0.02 * trace.mean
    assert abs(trace.mean - float(values.sum())) < 4 * trace.standard_error
    # Rademacher probes have variance 2 Σ_{i≠j} H²ᵢⱼ, none of it from the diagonal
    off = matrix - torch.diag(torch.diag(matrix))
    assert trace.standard_error == pytest.approx(math.sqrt(2 * float(off.square().sum()) / trace.num_probes), rel=0.3)


def test_a_trace_that_does_not_settle_says_so(quadratic: tuple[Tensor, Tensor]) -> None:
    matrix, _ = quadratic
    trace = trace_of([probe_traces(lambda v: v.double() @ matrix, 200, Noise(5), 0, 12)], tolerance=1e-6)
    assert (trace.converged, trace.num_probes) == (False, 12)
    assert trace.standard_error > 1e-6 * trace.mean


def test_probes_do_not_depend_on_their_chunks(quadratic: tuple[Tensor, Tensor]) -> None:
    matrix, _ = quadratic
    operator = lambda v: v.double() @ matrix  # noqa: E731
    whole = probe_traces(operator, 200, Noise(5), 0, 6)
    parts = probe_traces(operator, 200, Noise(5), 0, 2) + probe_traces(operator, 200, Noise(5), 2, 4)
    assert whole == pytest.approx(parts, rel=1e-12)
    assert len(set(whole)) == 6


def test_lanczos_on_a_known_spectrum(quadratic: tuple[Tensor, Tensor]) -> None:
    matrix, values = quadratic
    found = [lanczos(lambda v: v.double() @ matrix, 200, noise, 40) for noise in Noise(2).split("start", 4)]
    for spectrum in found:
        assert sum(spectrum.weights) == pytest.approx(1)
        assert [spectrum.nodes[0], *spectrum.nodes[-2:]] == pytest.approx([-3, 8, 20], abs=1e-6)
        # no copies of an eigenvalue that has converged: that is what orthogonalising against all vectors is for
        assert sum(node > 5 for node in spectrum.nodes) == 2
        for node, residual in zip(spectrum.nodes, spectrum.residuals, strict=True):
            assert float((values - node).abs().min()) <= residual + 1e-6
    # the quadrature is exact for the moments of each start, so their mean is Hutchinson's estimate of tr H / n
    mean = sum(w * x for spectrum in found for w, x in zip(spectrum.weights, spectrum.nodes, strict=True)) / len(found)
    assert mean == pytest.approx(float(values.mean()), rel=0.2)


def test_the_density_integrates_to_one_and_lies_where_the_eigenvalues_are(quadratic: tuple[Tensor, Tensor]) -> None:
    matrix, _ = quadratic
    found = [lanczos(lambda v: v.double() @ matrix, 200, noise, 40) for noise in Noise(2).split("start", 4)]
    at = torch.linspace(-5, 22, 5401, dtype=torch.float64)
    density = spectral_density(found, at, 0.1)
    step = float(at[1] - at[0])
    assert float(density.sum() * step) == pytest.approx(1, abs=1e-3)
    assert float(density[(at > -0.3) & (at < 1.3)].sum() * step) == pytest.approx(197 / 200, abs=0.02)
    assert float(density[(at > 3) & (at < 7)].sum() * step) < 1e-6


def test_lanczos_ends_when_there_is_nothing_left_to_find() -> None:
    found = lanczos(lambda v: 3 * v, 50, Noise(0), 20)
    assert found.nodes == pytest.approx([3])
    assert found.weights == pytest.approx([1])


@pytest.mark.usefixtures("way")
def test_attention_has_a_second_derivative_too(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(6, 3, 8, generator=torch.Generator().manual_seed(0))

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.inner(x).mean(1))

    torch.manual_seed(0)
    data = x, torch.arange(6) % 2
    task = CustomTask(Attending(), data, data, prunable=["linear"])
    state = task.init(Noise(0))
    hessian = Hessian(task, state, dense_mask(task), [task.unaugmented(torch.arange(6), CPU)], CPU, Numerics())
    vectors = torch.randn(2, hessian.size, generator=torch.Generator().manual_seed(1))
    products = hessian(vectors)
    assert float(vectors[0] @ products[1]) == pytest.approx(float(vectors[1] @ products[0]), rel=1e-3)  # it is symmetric
    assert products.abs().max() > 0
    assert not caplog.records


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_an_independent_library_finds_the_same() -> None:
    """PyHessian (Yao et al. 2020), where it is installed: its products exactly, its power iteration to its own tolerance."""
    pyhessian = pytest.importorskip("pyhessian")
    from pyhessian.utils import hessian_vector_product

    task = ImageTask(Config())
    state = task.init(Noise(0))
    batch = task.unaugmented(torch.arange(64), CPU)
    hessian = Hessian(task, state, dense_mask(task), [batch], CPU, Numerics())
    model = task.model()
    state.into(model)
    theirs = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=batch, cuda=False)
    vector = torch.randn(hessian.size, generator=torch.Generator().manual_seed(0))
    parts = [part.view(p.shape) for part, p in zip(vector.split([p.numel() for p in theirs.params]), theirs.params, strict=True)]
    expected = torch.cat([part.reshape(-1) for part in hessian_vector_product(theirs.gradsH, theirs.params, parts)])
    assert torch.allclose(hessian(vector[None])[0], expected, atol=1e-5 * float(expected.abs().max()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        (top,), _ = theirs.eigenvalues(maxIter=200, tol=1e-4)
    assert lanczos(hessian, hessian.size, Noise(0), 30).nodes[-1] == pytest.approx(top, rel=2e-3)
