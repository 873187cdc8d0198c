from __future__ import annotations

import pytest
import torch
from torch import nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.narrow import links, narrowed, shaped_like
from swamp.tasks.models import find_model


def trained(name: str) -> tuple[nn.Module, Mask]:
    """A network with norms that have seen something, channel-pruned to a fifth."""
    torch.manual_seed(0)
    model = find_model(name)(3, 5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.3, 0.3)  # a channel without input would then not be nothing
            nn.init.normal_(module.running_mean, 0.0, 0.1)
    state = State.of(model)
    mask = Mask.ones({n: tuple(t.shape) for n, t in state.parameters.items() if t.ndim == 4})
    # equal scale in every layer, so that all of them lose channels
    scores = {n: s / s.mean() for n, s in magnitude(state, mask).items()}
    mask = keep_highest(scores, mask, mask.num_weights // 5, "channel")
    mask.apply(state).into(model)
    return model.eval(), mask


@pytest.mark.parametrize("name", ["vgg13", "wrn10-1", "resnet-digits", "resnet18"])
def test_the_narrow_network_computes_the_same(name: str) -> None:
    model, mask = trained(name)
    x = torch.randn(3, 3, 16, 16)
    before = State.of(model).digest()
    small = narrowed(model, mask, x)
    torch.testing.assert_close(small(x), model(x), atol=1e-4, rtol=1e-3)
    assert State.of(model).digest() == before
    sizes = [sum(p.numel() for p in one.parameters()) for one in (small, model)]
    assert sizes[0] < (0.15 if name.startswith("vgg") else 0.8) * sizes[1]
    back = shaped_like(find_model(name)(3, 5), small.state_dict())
    back.load_state_dict(small.state_dict())
    assert torch.equal(back.eval()(x), small(x))


def test_streams_of_residual_networks_keep_their_width() -> None:
    found = links(find_model("wrn10-1")(3, 5), torch.zeros(1, 3, 8, 8))
    assert [(link.writers[0], link.readers) for link in found] == [
        (f"blocks.{block}.conv1.weight", [f"blocks.{block}.conv2.weight"]) for block in range(3)
    ]
    assert found[0].writers[1:] == [f"blocks.0.bn2.{leaf}" for leaf in ("weight", "bias", "running_mean", "running_var")]
    small = narrowed(*trained("wrn10-1"), torch.zeros(1, 3, 8, 8))
    assert small.get_parameter("stem.weight").shape == (16, 3, 3, 3)


def test_a_file_that_is_no_narrower_form_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3))
    with pytest.raises(ValueError, match="no narrower form"):
        shaped_like(model, {"0.weight": torch.zeros(3, 1, 3, 3), "0.bias": torch.zeros(3)})
    with pytest.raises(ValueError, match="different tensors"):
        shaped_like(model, {"0.weight": torch.zeros(2, 1, 3, 3)})
