"""The runtime computes what torch does: whole networks, and operations by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import swamp_runtime
import torch
from torch import nn
from torch.utils import _pytree as pytree

from swamp.export.program import read_program
from tests.support.compiling import needs_compiler
from tests.support.files import arrays_of, encoded, prune_at_random, some_of
from tests.support.networks import FUNCTIONS, NETWORKS, Function, Given, given, settled

pytestmark = [needs_compiler, pytest.mark.usefixtures("compiled_runtime")]

# Of the largest output. All of these networks are within 3e-7 of torch, which is itself up to 2.8e-7 from the same network in float64.
NEAR = 2e-6


def repeated(example: Given, times: int) -> Given:
    return pytree.tree_map(lambda leaf: leaf.repeat(times, *[1] * (leaf.ndim - 1)) if isinstance(leaf, torch.Tensor) else leaf, example)


def compare(model: nn.Module, *examples: Given, **options: Any) -> None:
    """Compare with torch: sparse on one thread and mostly dense on two, one example after the other and many at a time."""
    mask = prune_at_random(settled(model))
    made = read_program(model, *examples[0], **options)
    first = next(iter(mask.layers), None)
    sparse = swamp_runtime.load_bytes(encoded(model, mask, made), threads=1)
    dense = swamp_runtime.load_bytes(encoded(model, some_of(mask, lambda name: name == first), made), threads=2)
    for inputs, named in (*examples, repeated(examples[0], 9)):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*inputs, **named))
        for runtime in (sparse, dense):
            found = runtime(*arrays_of((inputs, named)))
            found = found if isinstance(found, tuple) else (found,)
            assert [one.shape for one in found] == [one.shape for one in expected]
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=NEAR * float(theirs.abs().max()))


# What the others have the operations of takes long to export.
@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - {"gpt-2 of transformers", "bert written out", "vit of torch's layers"}))
def test_a_network_computes_what_torch_does(name: str) -> None:
    factory, examples, options = NETWORKS[name]
    torch.manual_seed(0)
    compare(factory(), *examples, **options)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "gated"])
def test_an_operation_computes_what_torch_does(name: str) -> None:
    function, x, tensors, _ = FUNCTIONS[name]
    compare(Function(function, **tensors), given(x))
