from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from swamp.core.cost import macs_per_weight, masked_macs
from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.keys import digest
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.schedules import SWA, Schedule
from swamp.core.state import State


def test_a_state_is_a_copy_and_cannot_be_assigned_to() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    state = State.of(model)
    before = state.digest()
    with torch.no_grad():
        model[0].weight.zero_()
    model[1].running_mean.fill_(5.0)
    assert state.digest() == before
    with pytest.raises(TypeError):
        state.parameters["0.weight"] = torch.zeros(2, 2)  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        state.parameters = {}  # type: ignore[misc]
    state.into(model)
    assert State.of(model).digest() == before


def test_a_state_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="different tensors"):
        State.of(nn.Linear(2, 2)).into(nn.Linear(2, 2, bias=False))
    with pytest.raises(ValueError, match="has shape"):
        State.of(nn.Linear(2, 2)).into(nn.Linear(3, 2))


def test_tied_weights_appear_once() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    assert list(State.of(model).parameters) == ["a.weight", "a.bias", "b.bias"]


def test_applying_a_mask_leaves_the_state_alone_and_writes_plus_zero() -> None:
    state = State({"w": torch.tensor([-1.0, float("inf"), 3.0]), "b": torch.ones(1)}, {"n": torch.tensor(4)})
    before = state.digest()
    masked = Mask({"w": torch.tensor([False, False, True])}).apply(state)
    assert masked.parameters["w"].tolist() == [0.0, 0.0, 3.0]
    assert not torch.signbit(masked.parameters["w"]).any()
    assert masked.parameters["b"].tolist() == [1.0]
    assert masked.buffers["n"].item() == 4
    assert state.digest() == before


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=4))
def test_masks_survive_packing_and_pickling(layers: list[list[bool]]) -> None:
    mask = Mask({f"w{i}": torch.tensor(layer) for i, layer in enumerate(layers)})
    bits = mask.packed()
    assert all(packed.numel() == -(-len(layer) // 8) for packed, layer in zip(bits.values(), layers, strict=True))
    assert Mask.unpacked(bits, {name: list(layer.shape) for name, layer in mask.layers.items()}).digest == mask.digest
    assert pickle.loads(pickle.dumps(mask)).digest == mask.digest


def test_packed_bits_by_hand() -> None:
    mask = Mask({"w": torch.tensor([True, False, False, False, False, False, False, True, True])})
    assert mask.packed()["w"].tolist() == [0b10000001, 0b10000000]


def test_a_digest_sees_names_types_shapes_and_bytes() -> None:
    base = {"a": torch.zeros(2, 2)}
    others = [
        {"b": torch.zeros(2, 2)},
        {"a": torch.zeros(4)},
        {"a": torch.zeros(2, 2, dtype=torch.int32)},
        {"a": torch.tensor([[0.0, -0.0], [0, 0]])},
    ]
    assert len({digest(value) for value in [base, *others]}) == 5
    assert digest({"a": torch.ones(2), "b": torch.zeros(())}) == digest({"b": torch.zeros(()), "a": torch.ones(4)[::2]})


def make_job(**changes: object) -> Job:
    job = Job("task", "start", Mask.ones({"w": (3,)}), Noise(0), Schedule(), None, Optimizer(), Numerics())
    return replace(job, **changes)  # type: ignore[arg-type]


def test_a_job_key_covers_everything_that_decides_its_bits() -> None:
    variants = [
        make_job(),
        make_job(task="other"),
        make_job(start="other"),
        make_job(mask=Mask({"w": torch.tensor([True, True, False])})),
        make_job(noise=Noise(0).fold("x")),
        make_job(noise=Noise(1)),
        make_job(schedule=Schedule(epochs=7)),
        make_job(swa=SWA()),
        make_job(swa=SWA(entry="cosine-to")),
        make_job(optimizer=Optimizer(momentum=0.8)),
        make_job(numerics=Numerics(precision="bf16")),
        make_job(numerics=Numerics(threads=2)),
    ]
    assert len({job.key for job in variants}) == len(variants)
    assert make_job().key == make_job(mask=Mask.ones({"w": (3,)})).key


def test_macs_by_hand() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), nn.Flatten(), nn.Linear(4 * 16, 5))
    macs = macs_per_weight(model, lambda m: m(torch.zeros(1, 2, 8, 8)))
    # 4×4 output positions × (4 × 1 × 3 × 3) weights; one row × (5 × 64) weights
    assert macs == {"0.weight": 16 * 36, "2.weight": 320}
    mask = Mask({"0.weight": torch.cat([torch.ones(9), torch.zeros(27)]).bool().reshape(4, 1, 3, 3)})
    assert masked_macs(macs, mask) == 16 * 9 + 320
    transposed = nn.ConvTranspose2d(3, 2, 2, stride=2)
    assert macs_per_weight(transposed, lambda m: m(torch.zeros(1, 3, 4, 4))) == {"weight": 16 * 3 * 2 * 4}
