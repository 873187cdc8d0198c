from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from swamp.export.program import NetworkProgram, NoProgram, read_program
from tests.support.networks import (
    FUNCTIONS,
    GPT,
    IMAGE,
    NETWORKS,
    SEQUENCE,
    VECTOR,
    Function,
    Given,
    Two,
    bert,
    given,
    normal,
    sentences,
    settled,
    tokens,
    wide_resnet,
)
from tests.support.own_models import images as own_images
from tests.support.own_models import sequences as own_sequences
from tests.support.programs import run_program

NEAR = 2e-6  # of the largest output


def tensors_of(model: nn.Module, made: NetworkProgram) -> dict[str, np.ndarray]:
    ours = {name: tensor.detach().numpy() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    return ours | {name: tensor.numpy() for name, tensor in made.tensors.items()}


def compare(model: nn.Module, *examples: Given, **options: Any) -> NetworkProgram:
    """Read the program with the first example, and compare it with torch on all."""
    settled(model)
    made = read_program(model, *examples[0], **options)
    for inputs, named in examples:
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*inputs, **named))
        arrays = [leaf.numpy() for leaf in pytree.tree_leaves((inputs, named)) if isinstance(leaf, Tensor)]
        found = run_program(made.program, tensors_of(model, made), arrays)
        assert len(found) == len(expected)
        for ours, theirs in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=NEAR * float(theirs.abs().max()))
    return made


def operations(made: NetworkProgram) -> list[str]:
    return [node["op"] for node in made.program["nodes"]]


# -- whole networks ----------------------------------------------------------------------------------------------------------------------


# Tests of the runtime run the programs of all other networks, and compare them with torch, too.
NOT_RUN_ELSEWHERE = ("gpt-2 of transformers", "bert written out", "vit of torch's layers")


@pytest.mark.parametrize("name", [name if name in NOT_RUN_ELSEWHERE else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS])
def test_a_program_computes_what_its_network_does(name: str) -> None:
    factory, examples, options = NETWORKS[name]
    torch.manual_seed(0)
    model = factory()
    if name == "gpt-2 of transformers":  # It returns keys and values, too, which a program leaves out.
        model.config.use_cache = False
    compare(model, *examples, **options)


def test_a_wide_residual_network_has_one_node_for_each_layer() -> None:
    made = compare(wide_resnet(), given(normal(2, 3, 8, 8)))
    counts = {op: operations(made).count(op) for op in set(operations(made))}
    assert counts == {"conv": 9, "batch_norm": 7, "activation": 7, "add": 3, "global_mean": 1, "linear": 1}
    assert not made.tensors


def test_names_kinds_and_sizes_of_inputs_and_outputs() -> None:
    program = compare(Two(), given(normal(2, 3, 5, 5), vector=normal(2, 6))).program
    assert program["inputs"] == [
        {"name": "image", "kind": "image", "size": [3, 5, 5]},
        {"name": "vector", "kind": "vector", "size": [6, 1, 1]},
    ]
    assert [(output["name"], output["kind"]) for output in program["outputs"]] == [
        ("maps", "image"),
        ("sums.0", "vector"),
        ("sums.1", "vector"),
    ]
    free = compare(bert(), sentences(2, 5), free_length=True).program
    assert [(entry["kind"], entry["size"]) for entry in free["inputs"]] == 3 * [("tokens", [1, 1, None])]
    assert free["outputs"][0]["name"] == "logits"


def test_tied_weights_have_the_name_that_states_have() -> None:
    made = compare(GPT(), given(tokens(2, 5)))
    assert [node["weight"] for node in made.program["nodes"] if node["op"] in ("embedding", "positions")] == [
        "embedding.weight",
        "positions.weight",
    ]
    assert made.program["nodes"][-1]["weight"] == "embedding.weight"
    assert not made.tensors


def test_the_token_of_padding_need_not_be_in_the_example() -> None:
    with_padding = BELOW_17.clone()
    with_padding[:, 3:] = 17
    number = torch.tensor(17)
    for seen in (lambda ids: ids != 17, lambda ids: ids != number):
        compare(Masked(seen), given(BELOW_17), given(with_padding))


def test_a_table_of_the_vocabulary_may_say_what_is_padding() -> None:
    """The last token is the one of padding, so that there is no token after it."""
    is_padding = torch.arange(20) == 19
    ids = BELOW_17.clone()
    ids[:, 3:] = 19
    compare(Masked(lambda ids: (ids != 19) & ~is_padding[ids]), given(ids), given(BELOW_17))


# -- operations by themselves ------------------------------------------------------------------------------------------------------------


# Tests of the runtime run all of these; here it counts into which operations some are translated.
TRANSLATED = [name if name == "gated" or row[3] else pytest.param(name, marks=pytest.mark.slow) for name, row in FUNCTIONS.items()]


@pytest.mark.parametrize("name", TRANSLATED)
def test_an_operation_by_itself(name: str) -> None:
    function, x, tensors, expected = FUNCTIONS[name]
    if name == "gated":
        with pytest.raises(NoProgram, match="glu cannot be part of a program"):
            read_program(Function(function), (x,))
        return
    made = compare(Function(function, **tensors), given(x))
    assert not expected or operations(made) == expected


def test_hand_computed_values() -> None:
    """The reference itself: a convolution, attention with a mask, and an int8 layer."""
    program = {
        "inputs": [{"name": "x", "kind": "sequence", "size": [1, 1, None]}, {"name": "m", "kind": "tokens", "size": [1, 1, None]}],
        "nodes": [
            {"op": "attention", "in": [0, 0, 0, 1], "heads": 1, "causal": True, "scale": 0.0},
            {"op": "linear", "in": [0], "weight": "w", "bias": "b", "input": [0.5, 0]},
        ],
        "outputs": [{"name": "a", "value": 2, "kind": "sequence"}, {"name": "l", "value": 3, "kind": "sequence"}],
    }
    x, mask = np.array([[[2.0], [4.0], [-6.3]]]), np.array([[1, 1, 0]])
    found = run_program(program, {"w": np.array([[3.0]]), "b": np.array([1.0])}, [x, mask])
    assert found["a"].ravel().tolist() == [2, 3, 3]  # means of what each token sees
    assert found["l"].ravel().tolist() == [7, 13, 1]  # -6.3 is clipped at 0, as all that is negative with zero 0


# -- refusals ----------------------------------------------------------------------------------------------------------------------------


class Branching(nn.Module):
    """What it computes depends on its input."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x
        return -x


def in_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ torch.ones(6, 2)


def first_pad(x: Tensor) -> Tensor:
    return x * len(x)


class Masked(nn.Module):
    """Attention that sees some of its tokens."""

    def __init__(self, seen: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.embedding, self.seen = nn.Embedding(20, 6), seen

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=self.seen(ids)[:, None])


BELOW_17 = torch.arange(4, 14).reshape(2, 5)  # no token of padding, nor any of 0 to 3

REFUSALS: dict[str, tuple[nn.Module, Given, dict[str, Any], str]] = {
    "lstm": (own_sequences.Reader(), given(tokens(2, 5)), {}, r"^lstm cannot .* \(module rnn, sequences.py line \d+\): .* not supported$"),
    "a branch": (
        Branching(),
        given(VECTOR),
        {},
        r"^torch.export cannot read the forward pass \(test_program.py line \d+\): Could not guard",
    ),
    "conv3d": (own_images.conv3d(), given(normal(2, 1, 4, 5, 5)), {}, r"^the input input of type float32 and shape \(batch, 1, 4, 5, 5\)"),
    "transposed convolution": (own_images.UNet(), given(normal(2, 1, 8, 8)), {}, r"^conv_transpose2d .* \(module up, images.py line \d+\)"),
    "batch as a number": (Function(first_pad), given(VECTOR), {}, "must write x.shape\\[0\\], not len"),
    "division": (Function(lambda x: x / (x**2 + 1)), given(VECTOR), {}, r"^div .* \(networks.py line \d+\): division by something"),
    "free size as a number": (
        Function(lambda x, w: x @ w / x.shape[1], w=normal(8, 8)),
        given(SEQUENCE),
        {"free_length": True},
        "computes with a free size",
    ),
    "fixed length": (
        Function(lambda x, p: x + p, p=normal(5, 8)),
        given(SEQUENCE),
        {"free_length": True},
        "input inputs_0.*cannot be free",
    ),
    "position bias": (
        Function(lambda x, p: F.scaled_dot_product_attention(x, x, x, attn_mask=p), p=normal(5, 5)),
        given(SEQUENCE),
        {},
        "something other than a mask is added",
    ),
    "other mask": (
        Function(lambda x, p: F.scaled_dot_product_attention(x, x, x, attn_mask=p), p=torch.tril(torch.ones(5, 5), 1).bool()),
        given(SEQUENCE),
        {},
        "neither causal nor one of padding",
    ),
    "tokens as numbers": (Function(lambda x: x.float()), given(tokens(2, 5)), {}, "output depends on no image"),
    "vector to image": (Function(lambda x: F.max_pool2d(x.view(-1, 1, 2, 3), 2)), given(VECTOR), {}, "is turned into an image"),
    "over the batch": (Function(lambda x: x - x.mean(0)), given(VECTOR), {}, "only over all pixels of an image"),
    "autocast": (Function(in_autocast), given(VECTOR), {}, "a context of its own, such as torch.autocast"),
    "half precision": (nn.Linear(6, 2).half(), given(VECTOR), {}, "computes in float32"),
    "ceil_mode": (Function(lambda x: F.max_pool2d(x, 4, 3, ceil_mode=True)), given(IMAGE), {}, "ceil_mode"),
    "one-sided padding": (nn.Conv2d(4, 4, 2, padding="same"), given(IMAGE), {}, "pads one side more than the other"),
    "whole number outputs": (Function(lambda x: x[:, 0]), given(VECTOR), {}, "output is neither an image, a vector nor a sequence"),
    "random numbers": (Function(lambda x: F.dropout(x, 0.5)), given(VECTOR), {}, "training=self.training"),
    "repeated numbers": (
        Function(lambda x: x.mean(1, keepdim=True).expand(-1, 5, -1) + x.amax(1, keepdim=True).expand(-1, 5, -1)),
        given(SEQUENCE),
        {},
        r"^add .* it repeats values",
    ),
    "number of examples": (Function(lambda x: x if x.shape[0] > 4 else -x), given(VECTOR), {}, "depends on the number of examples"),
    "rows of a free size": (Function(lambda x, p: x * p, p=normal(6, 1)), given(IMAGE), {"free_size": True}, "whose size is free"),
    "tokens of two paddings": (Masked(lambda ids: (ids != 17) & (ids != 18)), given(BELOW_17), {}, "nor one of padding"),
    "tokens in a range": (Masked(lambda ids: ids < 17), given(BELOW_17), {}, "nor one of padding"),
    "other tokens": (Function(lambda x, p: F.embedding(x.clamp(max=16), p), p=normal(20, 6)), given(BELOW_17), {}, "neither an input nor"),
    "scores": (Function(lambda x: x @ x.transpose(1, 2)), given(SEQUENCE), {}, "output depends on no image"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_program_gets_one_sentence(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    model, (inputs, named), options, why = REFUSALS[name]
    with pytest.raises(NoProgram, match=why) as error:
        read_program(model, inputs, named, **options)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")  # torch would print some graphs
