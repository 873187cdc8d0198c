"""Masks that stay on while somebody else's loop trains the model."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.mask import Mask
from swamp.training.masking import masked

ADAM: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, fused=True),
    "adam": lambda p: torch.optim.Adam(p, **ADAM, amsgrad=True),
    "adam foreach": lambda p: torch.optim.Adam(p, **ADAM, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, **ADAM),
    "adamw fused": lambda p: torch.optim.AdamW(p, **ADAM, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.05, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.05),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def half(model: nn.Module) -> Mask:
    generator = torch.Generator().manual_seed(1)
    return Mask({name: torch.rand(p.shape, generator=generator) < 0.5 for name, p in model.named_parameters() if p.ndim > 1})


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(8, 1, 4, 4, generator=generator), torch.randint(3, (8,), generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    inputs, targets = data()

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(model(inputs), targets)
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(loss)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_gradients_and_memory_are_zero_off_the_mask(name: str) -> None:
    model = network()
    mask = half(model)
    optimizer = OPTIMIZERS[name](model.parameters())
    with masked(model, mask) as held:
        train(model, optimizer)
        assert held.violation() == ""
    for layer, alive in mask.layers.items():
        parameter = model.get_parameter(layer)
        kept = [parameter, parameter.grad, *optimizer.state[parameter].values()]
        same_shape = [tensor for tensor in kept if isinstance(tensor, Tensor) and tensor.shape == parameter.shape]
        assert all(not tensor.detach()[~alive].any() for tensor in same_shape)
        assert parameter.detach()[alive].all(), "what is alive was trained, not zeroed"


def test_the_survivors_are_trained_as_if_the_others_had_never_been() -> None:
    """A mask that removes whole input features gives the weights of the network without these features."""
    torch.manual_seed(0)
    wide, narrow = nn.Linear(4, 2), nn.Linear(2, 2)
    with torch.no_grad():
        narrow.weight.copy_(wide.weight[:, :2])
        narrow.bias.copy_(wide.bias)
    inputs, targets = torch.randn(8, 4), torch.randn(8, 2)
    alive = torch.tensor([True, True, False, False]).expand(2, 4).clone()
    optimizers = [torch.optim.AdamW(model.parameters(), **ADAM) for model in (wide, narrow)]
    with masked(wide, Mask({"weight": alive})):
        for _ in range(5):
            for model, optimizer, x in ((wide, optimizers[0], inputs), (narrow, optimizers[1], inputs[:, :2])):
                optimizer.zero_grad()
                F.mse_loss(model(x), targets).backward()
                optimizer.step()
    torch.testing.assert_close(wide.weight[:, :2], narrow.weight)


def test_a_compiled_model_is_masked() -> None:
    model = network()
    mask = half(model)
    compiled, optimizer = torch.compile(model, backend="aot_eager"), torch.optim.AdamW(model.parameters(), **ADAM)
    with masked(model, mask) as held:
        train(compiled, optimizer)  # type: ignore[arg-type]
        assert held.violation() == ""
    for name, alive in mask.layers.items():
        assert not model.get_parameter(name).grad[~alive].any()  # type: ignore[index]
        assert not optimizer.state[model.get_parameter(name)]["exp_avg"][~alive].any()


def test_accumulated_clipped_and_scaled_gradients_of_parameter_groups() -> None:
    model = network()
    mask = half(model)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters(), "weight_decay": 0.5}]
    optimizer, scaler = torch.optim.AdamW(groups, lr=0.01), torch.amp.GradScaler("cpu")
    inputs, targets = data()
    with masked(model, mask) as held:
        for _ in range(2):
            optimizer.zero_grad()
            for part in (slice(0, 4), slice(4, 8)):
                scaler.scale(F.cross_entropy(model(inputs[part]), targets[part])).backward()
            scaler.unscale_(optimizer)
            assert not model[0].weight.grad[~mask.layers["0.weight"]].any()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        assert held.violation() == ""


@pytest.mark.parametrize("name", ["sgd", "adamw", "rmsprop"])
def test_a_layer_that_is_unfrozen_later_stays_masked_too(name: str) -> None:
    model = network()
    mask = half(model)
    model[3].requires_grad_(False)
    optimizer = OPTIMIZERS[name](model.parameters())
    with masked(model, mask) as held:
        assert not model[3].weight.requires_grad
        frozen = model[3].weight.detach().clone()
        train(model, optimizer)
        assert torch.equal(model.get_parameter("3.weight"), frozen)
        model[3].requires_grad_(True)
        train(model, optimizer)
        assert held.violation() == ""
    pruned, weight = ~mask.layers["3.weight"], model[3].weight
    memory = [tensor for tensor in optimizer.state[weight].values() if isinstance(tensor, Tensor) and tensor.shape == weight.shape]
    assert memory
    assert all(not tensor.detach()[pruned].any() for tensor in (weight, weight.grad, *memory))  # type: ignore[union-attr]
    assert not torch.equal(model.get_parameter("3.weight"), frozen)


def test_a_removed_mask_masks_nothing_and_other_models_never_are() -> None:
    model, other = network(), network()
    mask = half(model)
    held = masked(model, mask)
    train(other, torch.optim.SGD(other.parameters(), lr=0.1))
    assert other[0].weight.detach().all()
    held.remove()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1))
    assert held.violation() == "0.weight"


def test_what_a_mask_does_not_fit_is_named() -> None:
    model = network()
    with pytest.raises(ValueError, match="prunes 'conv', which is no parameter of the Sequential"):
        masked(model, Mask({"conv": torch.ones(1, dtype=torch.bool)}))
    with pytest.raises(ValueError, match=r"the mask of '0.weight' and the parameter have different shapes: 2 and 4×1×3×3"):
        masked(model, Mask({"0.weight": torch.ones(2, dtype=torch.bool)}))


def test_a_masked_model_can_be_sent_to_other_processes() -> None:
    """As a loop of several ranks sends it, which torch warns of where it would leave a hook behind by mistake."""
    model = network()
    with masked(model, half(model)):
        sent = pickle.loads(ForkingPickler.dumps(model))
    assert torch.equal(sent.state_dict()["0.weight"], model.state_dict()["0.weight"])


@pytest.mark.parametrize(
    ("model", "mask", "message"),
    [
        (network(), {"0.weight": torch.ones(4, 1, 3, 3, dtype=torch.bool)}, "mask is a dict; give a swamp.Mask, as load returns it"),
        (network, half(network()), "model is a function; give a module"),
    ],
)
def test_what_is_no_module_and_no_mask_gets_a_sentence(model: Any, mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        masked(model, mask)
