"""State dicts as tensors: whatever an optimizer, a schedule or a scaler remembers comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from swamp.core.state_dicts import TEXT, pack, unpack


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS, torch.optim.Rprop])
def test_an_optimizer_goes_on_as_if_nothing_had_happened(kind: Any) -> None:
    def train(weight: torch.Tensor, optimizer: torch.optim.Optimizer, steps: int) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = ((weight - torch.tensor([1.0, 2.0])) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)  # type: ignore[arg-type]

    weights = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    optimizers = [kind([weight], lr=0.1) for weight in weights]
    train(weights[0], optimizers[0], 5)
    train(weights[1], optimizers[1], 2)
    copy = weights[1].detach().clone().requires_grad_()
    fresh = kind([copy], lr=0.5)
    fresh.load_state_dict(unpack(pack(optimizers[1].state_dict())))
    train(copy, fresh, 3)
    assert torch.equal(copy, weights[0])


def test_what_cannot_be_kept_is_named_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"state\['groups'\]\[0\]\['hook'\] is a function, which cannot be kept"):
        pack({"groups": [{"hook": unpack}]})


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b'{"tensor": "9"}', b'{"dict": 3}', b'{"a": 1, "b": 2}'])
def test_a_state_from_anybody_gets_one_sentence(text: bytes) -> None:
    hostile = {TEXT: torch.frombuffer(bytearray(text or b"\0"), dtype=torch.uint8)}
    with pytest.raises(ValueError, match="the checkpoint holds no state that can be restored"):
        unpack(hostile)
