"""Scores against derivations by hand, the explicit Hessian and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp
from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest
from swamp.scores import grasp, snip, synflow, synflow_mask


def two_layers(seed: int = 0, sizes: tuple[int, int, int] = (3, 4, 2)) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(sizes[0], sizes[1], bias=False), nn.Tanh(), nn.Linear(sizes[1], sizes[2], bias=False)).double()


NAMES = ["0.weight", "2.weight"]
X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.8, -1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1])


def loss_of(rows: slice) -> Callable[[nn.Module], Tensor]:
    return lambda model: F.cross_entropy(model(X[rows]), Y[rows])


def test_the_public_name() -> None:
    assert swamp.scores.snip is snip


def test_snip_by_hand() -> None:
    """A linear network with squared loss: L = (a·b·x − y)²/1, dL/da = 2(abx − y)bx, dL/db = 2(abx − y)ax."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.fill_(2.0)
        model[1].weight.fill_(-3.0)
    scores = snip(model, lambda m: (m(torch.tensor([[0.5]])) - 1.0).pow(2).sum(), ["0.weight", "1.weight"])
    # a b x − y = −4; a dL/da = 2·(−4)·(−3)·0.5·2 = 24 and so is b dL/db: each is half of the whole
    assert scores["0.weight"].item() == pytest.approx(0.5)
    assert scores["1.weight"].item() == pytest.approx(0.5)


def test_snip_is_the_loss_change_to_first_order() -> None:
    model = two_layers()
    loss = loss_of(slice(None))
    scores = snip(model, loss, NAMES)
    assert sum(float(score.sum()) for score in scores.values()) == pytest.approx(1.0)
    weight = model[0].weight
    raw = torch.zeros_like(weight)  # type: ignore[arg-type]
    for index in range(weight.numel()):  # ∂L/∂c at c = 1 for w → c w, by central differences
        with torch.no_grad():
            flat, kept = weight.view(-1), weight.view(-1)[index].item()
            ends = []
            for scale in (1 + 1e-5, 1 - 1e-5):
                flat[index] = kept * scale
                ends.append(loss(model).item())
            flat[index] = kept
        raw.view(-1)[index] = abs(ends[0] - ends[1]) / 2e-5
    torch.testing.assert_close(scores["0.weight"] / scores["0.weight"].sum(), raw / raw.sum(), rtol=1e-6, atol=1e-9)


def explicit_hessian(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> tuple[Tensor, Tensor]:
    """Gradient and Hessian of a loss by all weights, in order."""
    shapes = [p.shape for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]

    def of_flat(flat: Tensor) -> Tensor:
        parts = [part.reshape(shape) for part, shape in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)]
        return torch.func.functional_call(_Loss(model, loss), {f"model.{name}": part for name, part in zip(names, parts, strict=True)}, ())

    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return torch.func.grad(of_flat)(flat), torch.autograd.functional.hessian(of_flat, flat)


class _Loss(nn.Module):
    def __init__(self, model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self) -> Tensor:
        return self.loss(self.model)


def test_grasp_against_the_explicit_hessian() -> None:
    model = two_layers()
    losses = [loss_of(slice(0, 1)), loss_of(slice(1, 2))]
    found = grasp(model, losses, NAMES)
    pairs = [explicit_hessian(model, loss) for loss in losses]
    g, hessian = pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1]
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    expected = -flat * (hessian @ g)
    torch.testing.assert_close(torch.cat([found[name].reshape(-1) for name in NAMES]), expected, rtol=1e-9, atol=1e-12)


def test_grasp_is_the_change_of_the_gradients_norm() -> None:
    """−w (H g) is −½ ∂‖g‖²/∂c at c = 1 for w → c w, by central differences: removing the highest harms the norm least."""
    model = two_layers()
    loss = loss_of(slice(None))

    def half_norm() -> float:
        return 0.5 * sum(float(g.pow(2).sum()) for g in torch.autograd.grad(loss(model), list(model.parameters())))

    found = grasp(model, [loss], NAMES)["2.weight"].reshape(-1)
    flat = model[2].weight.data.view(-1)
    for index in range(len(flat)):
        kept, ends = flat[index].item(), []
        for scale in (1 + 1e-5, 1 - 1e-5):
            flat[index] = kept * scale
            ends.append(half_norm())
        flat[index] = kept
        assert found[index].item() == pytest.approx(-(ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-10)


def whole(model: nn.Module) -> Mask:
    return Mask.ones({name: tuple(p.shape) for name, p in model.named_parameters() if p.ndim > 1})


def linear_stack(*sizes: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)))


def on_ones(size: int) -> Callable[[nn.Module], Tensor]:
    return lambda model: model(torch.ones(1, size, dtype=torch.float64))


def test_synflow_against_its_closed_form() -> None:
    """R = 1ᵀ|W₂||W₁|1, so the score of W₁ is |W₁| ∘ (|W₂|ᵀ1)(1)ᵀ and that of W₂ is |W₂| ∘ 1(|W₁|1)ᵀ."""
    model = linear_stack(3, 5, 2)
    first, second = (layer.weight.detach().double().abs() for layer in model)
    found = synflow(model, on_ones(3), whole(model))
    torch.testing.assert_close(found["0.weight"], first * second.sum(0)[:, None], rtol=1e-12, atol=0)
    torch.testing.assert_close(found["1.weight"], second * first.sum(1)[None, :], rtol=1e-12, atol=0)


def test_synflow_conserves_flow_from_layer_to_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 3, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5, bias=False)
    )
    scores = synflow(model, lambda m: m(torch.ones(1, 2, 6, 6, dtype=torch.float64)), whole(model))
    totals = [float(score.sum()) for score in scores.values()]
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-12)
    # unit by unit: what comes into a hidden channel goes out of it
    torch.testing.assert_close(scores["0.weight"].sum((1, 2, 3)), scores["2.weight"].sum((0, 2, 3)), rtol=1e-12, atol=0)


def test_synflow_keeps_every_layer_alive_where_magnitude_does_not() -> None:
    """At 99.9 %, in a network as it is initialised: the widest layer has the smallest weights."""
    model = linear_stack(100, 100, 1000, 10)
    mask = whole(model)
    num_keep = mask.num_weights // 1000
    flowing = synflow_mask(model, on_ones(100), mask, num_keep)
    by_size = keep_highest({name: dict(model.named_parameters())[name].abs() for name in mask.layers}, mask, num_keep)
    assert flowing.num_survivors == by_size.num_survivors == num_keep
    assert min(flowing.densities.values()) > 0
    assert min(by_size.densities.values()) == 0


def test_synflow_in_one_step_cuts_what_many_steps_keep() -> None:
    model = linear_stack(200, 200, 200, 10)
    mask = whole(model)
    num_keep = mask.num_weights // 1000
    flows = [synflow(model, on_ones(200), synflow_mask(model, on_ones(200), mask, num_keep, steps)) for steps in (1, 100)]
    assert float(flows[1]["0.weight"].sum()) > float(flows[0]["0.weight"].sum())


def test_scores_leave_the_model_as_it_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 16, 2))
    model[0].weight.data[0] = 0.0
    model[0].weight.data[1] = -0.0  # a sign that multiplication by a sign would lose
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.randn(4, 1, 6, 6)

    def loss(view: nn.Module) -> Tensor:
        return F.cross_entropy(view(x), torch.tensor([0, 1, 0, 1]))

    snip(model.train(), loss, ["0.weight"])
    grasp(model.train(), [loss], ["0.weight"])
    synflow(model.eval(), lambda view: view(torch.ones(1, 1, 6, 6, dtype=torch.float64)), Mask.ones({"0.weight": (3, 1, 3, 3)}))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert torch.equal(tensor.float().signbit(), before[name].float().signbit()), name
    assert all(p.grad is None for p in model.parameters())


class Parts(nn.Module):
    """A model whose loss calls its parts one by one, that has a layer nobody uses, and attributes called like those of wrappers."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.idle = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)
        self.model = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


def test_calls_of_submodules_are_seen_too_and_what_is_unused_is_worth_nothing() -> None:
    torch.manual_seed(0)
    model = Parts().double()
    names = ["body.weight", "head.weight", "idle.weight"]

    def by_parts(m: nn.Module) -> Tensor:
        return F.cross_entropy(m.head(torch.tanh(m.body(X))), Y)  # type: ignore[operator]

    for score in (lambda loss: snip(model, loss, names), lambda loss: grasp(model, [loss], names)):
        whole_model, parts = score(loss_of(slice(None))), score(by_parts)
        for name in names:
            assert torch.equal(whole_model[name], parts[name])
            assert bool(parts[name].any()) == (name != "idle.weight")


def test_synflow_is_never_negative_where_layers_subtract() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.LayerNorm(8), nn.Linear(8, 3, bias=False))
    scores = synflow(model, on_ones(6), whole(model))
    assert all(bool((score >= 0).all()) for score in scores.values())
    assert scores["0.weight"].any()


def test_grasp_takes_fused_attention() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.out(F.scaled_dot_product_attention(q, k, v).mean(1))

    torch.manual_seed(0)
    x = torch.randn(4, 5, 8)
    scores = grasp(Attention(), [lambda m: F.cross_entropy(m(x), torch.tensor([0, 1, 0, 1]))], ["qkv.weight", "out.weight"])
    assert all(bool(score.any()) for score in scores.values())
