"""Finds out what integers of a graph are: token numbers, positions, masks.

Models compute masks and positions in many ways, by comparing ranges, slicing buffers, gathering and summing. Here none of these operations
is interpreted. They are few and cheap, and depend on no weight, so they are run for several batches of random tokens and masks, and what
comes out is compared with the few kinds of positions and masks that a program can hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils import _pytree as pytree

from swamp.export.program.layouts import BATCH, CHANNEL, KEY, PIXEL, NoProgram, TensorLayout

BATCH_SIZE = 3
NUM_LENGTHS = 4
MAX_TOKEN = 1 << 24  # larger integers of a graph, such as the end of a slice that has none, are no tokens
MAX_NAMED = 64  # a tensor of more integers is not taken for a list of special tokens
MASKED = -1e4  # a number that is added to scores masks them if it is at most this
Symbols = Mapping[Any, int]  # values of the symbols in a graph's sizes


def concrete(size: Any, symbols: Symbols) -> int:
    """Return a size of a graph as a number.

    >>> concrete(3, {})
    3
    """
    return size if type(size) is int else int(size.node.expr.xreplace(dict(symbols)))


class Probe(NamedTuple):
    """Random inputs of some size, and all that was computed from them so far."""

    symbols: Symbols
    found: dict[Node, Any]


class Positions(NamedTuple):
    """The numbers offset, offset + 1, ... of the tokens."""

    offset: int


class CountedPositions(NamedTuple):
    """The numbers offset + 1, offset + 2, ... of the tokens of an input that are not `padding`, and `offset` for those that are."""

    input: Node
    padding: int
    offset: int

    def of(self, tokens: Tensor) -> Tensor:
        """Return the numbers of some tokens."""
        counts = tokens != self.padding
        return self.offset + counts.cumsum(1) * counts


class SeenKeys(NamedTuple):
    """A mask of attention: a query sees the keys whose token of an input is not `hidden`, and if causal none after itself."""

    causal: bool
    input: Node | None
    hidden: int


Index = Node | Positions | CountedPositions | int  # what a table can be indexed with


class Probes:
    """Several random batches of a graph's integer inputs."""

    def __init__(
        self,
        nodes: Iterable[Node],
        tokens: Mapping[Node, Tensor],
        tensors: Mapping[Node, Tensor],
        ranges: Mapping[Any, Any],
        batch: set[Any],
    ) -> None:
        """`nodes` are those of the graph, `tokens` examples of the integer inputs, `tensors` the model's, `ranges` those of the symbols in
        sizes, and `batch` the symbols of the number of examples."""
        self.tokens, self.tensors = tokens, tensors
        self.special = special_tokens(nodes, tensors.values())
        self.ranges, self.batch = ranges, batch
        self.computed: set[Node] = set()  # nodes that may be run

    @cached_property
    def _all(self) -> list[Probe]:
        draw = torch.Generator().manual_seed(0)
        lengths = [symbol for symbol in self.ranges if symbol not in self.batch]
        probes = []
        for number in range(max(NUM_LENGTHS, len(self.special))):  # Each special token is the first in one of them.
            symbols, more = {}, number % NUM_LENGTHS
            for symbol, allowed in self.ranges.items():
                lowest, highest = int(allowed.lower), int(min(allowed.upper, 1 << 30))
                wanted = BATCH_SIZE if symbol in self.batch else 5 + more + 7 * lengths.index(symbol)
                symbols[symbol] = min(max(wanted, lowest), highest) - (more if highest < wanted and highest - more >= lowest else 0)
            found: dict[Node, Any] = {}
            for node, example in self.tokens.items():
                shape = [concrete(size, symbols) for size in node.meta["val"].shape]
                known = example.unique().long()
                # Masks of zeros and ones stay so: a model may rely on it. Half of all other tokens are special ones, each in its turn.
                is_mask = int(known.max()) <= 1 and int(known.min()) >= 0
                special, common = (torch.tensor([0, 1]),) * 2 if is_mask else (self.special, known)
                count = math.prod(shape)
                turns = (number + torch.arange(-(-count // 2))) % len(special)
                drawn = torch.cat([special[turns], common[torch.randint(len(common), (count // 2,), generator=draw)]])
                found[node] = drawn[torch.randperm(count, generator=draw)].reshape(shape).to(example.dtype)
            probes.append(Probe(symbols, found))
        return probes

    def run(self, node: Node, probe: Probe) -> Any:
        """Return what a node computes for one probe."""
        if node in probe.found:
            return probe.found[node]
        if node in self.tensors:
            return self.tensors[node]
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, int)):
            return concrete(value, probe.symbols)
        if node not in self.computed:  # an image, of which only the shape matters here
            return torch.zeros([concrete(size, probe.symbols) for size in value.shape], dtype=value.dtype)  # type: ignore[union-attr]
        arguments, options = pytree.tree_map(
            lambda leaf: self.run(leaf, probe) if isinstance(leaf, Node) else leaf, (list(node.args), dict(node.kwargs))
        )
        probe.found[node] = node.target(*arguments, **options)  # type: ignore[operator]
        return probe.found[node]

    def index(self, node: Node) -> Index:
        """Return what an index of shape (batch, tokens) is: an input, positions, or the same number everywhere."""
        guesses: list[Index] = list(self.tokens)
        first = self.run(node, self._all[0])
        if first.numel():
            guesses += [Positions(int(first.reshape(-1)[0])), int(first.reshape(-1)[0])]
            guesses += [CountedPositions(entry, token, int(first.min())) for entry in self.tokens for token in self._seen_tokens(entry)]
        for guess in guesses:
            if all(self._is_index(node, guess, probe) for probe in self._all):
                return guess
        raise NoProgram("the index is neither an input nor the positions of the tokens")

    def _seen_tokens(self, entry: Node) -> list[int]:
        """Return the tokens of an input in all probes."""
        return sorted({int(token) for probe in self._all for token in probe.found[entry].unique()})

    def _is_index(self, node: Node, guess: Index, probe: Probe) -> bool:
        found = self.run(node, probe)
        if isinstance(guess, Node):
            return bool(found.shape == probe.found[guess].shape and (found == probe.found[guess]).all())
        if isinstance(guess, CountedPositions):
            tokens = probe.found[guess.input]
            return bool(found.shape == tokens.shape and (found == guess.of(tokens)).all())
        if isinstance(guess, Positions):
            return bool((found == guess.offset + torch.arange(found.shape[-1])).all())
        return bool((found == guess).all())

    def seen_keys(self, node: Node, layout: TensorLayout, shape: Sequence[Any], hides: bool = False) -> SeenKeys:
        """Return which keys a mask of scores with this layout and shape shows. The mask is boolean (true: seen, or hidden if `hides`), or
        it is added."""
        shown = []
        for probe in self._all:
            sizes = [concrete(size, probe.symbols) for size in shape]
            shown.append((probe, _shown(self.run(node, probe), layout, sizes, hides)))
        hidden = [0, *sorted({token for entry in self.tokens for token in self._seen_tokens(entry)} - {0})]
        guesses = [SeenKeys(causal, None, 0) for causal in (False, True)]
        guesses += [SeenKeys(causal, entry, token) for entry in self.tokens for causal in (False, True) for token in hidden]
        for guess in guesses:
            if all(_agrees(guess, mask, probe) for probe, mask in shown):
                return guess
        raise NoProgram("its mask is neither causal nor one of padding, which is 0 for tokens that are not seen")


def special_tokens(nodes: Iterable[Node], tensors: Iterable[Tensor]) -> Tensor:
    """Return the tokens that a graph may treat unlike others: 0 to 3, integers that its computations with integers name, such as the number
    of a token of padding, and their neighbours. Numbers for which no embedding has a row are left out."""
    named, num_rows = {1, 2}, list[int]()
    for node in nodes:
        value = node.meta.get("val")
        if node.target is torch.ops.aten.embedding.default:
            num_rows.append(int(node.args[0].meta["val"].shape[0]))  # type: ignore[union-attr]
        if isinstance(value, Tensor) and not value.is_floating_point():
            named |= {given for given in node.args if type(given) is int and 0 <= given <= MAX_TOKEN}
    for tensor in tensors:
        if not tensor.is_floating_point() and tensor.numel() <= MAX_NAMED:
            named |= {int(number) for number in tensor.reshape(-1) if 0 <= number <= MAX_TOKEN}
    found = {max(number + step, 0) for number in named for step in (-1, 0, 1)}
    return torch.tensor(sorted(token for token in found if token < max(num_rows, default=MAX_TOKEN)))


def _agrees(guess: SeenKeys, mask: Tensor, probe: Probe) -> bool:
    expected = torch.ones(mask.shape, dtype=torch.bool)
    if guess.causal:
        if mask.shape[1] != mask.shape[2]:
            return False
        expected = expected.tril()
    if guess.input is not None:
        tokens = probe.found[guess.input]
        if tokens.shape != (mask.shape[0], mask.shape[2]):
            return False
        expected = expected & (tokens != guess.hidden)[:, None, :]
    some = expected.any(2)  # a query that sees nothing has no meaningful answer
    return bool((expected == mask)[some].all())


def _shown(mask: Tensor, layout: TensorLayout, shape: Sequence[int], hides: bool) -> Tensor:
    """Return a mask of scores with this layout and shape as (batch, queries, keys), true where a query sees a key."""
    if mask.dtype == torch.bool:
        seen = ~mask if hides else mask
    else:
        seen = mask == 0
        if not bool((seen | (mask <= MASKED)).all()):
            raise NoProgram("something other than a mask is added to its scores")
    sizes: list[tuple[str, int]] = []
    for dimension, size in zip(layout, shape, strict=True):
        # The sizes of the other axes are those of the probe: what is left of the dimension.
        parts = [(factor.axis, {CHANNEL: factor.size, BATCH: BATCH_SIZE}.get(factor.axis, 0)) for factor in dimension]
        rest = size // math.prod(part for _, part in parts if part)
        sizes += [(axis, part or rest) for axis, part in parts]
    order = [place for name in (CHANNEL, BATCH, PIXEL, KEY) for place, (axis, _) in enumerate(sizes) if axis == name]
    lengths = [math.prod(size for axis, size in sizes if axis == name) for name in (CHANNEL, BATCH, PIXEL, KEY)]
    heads = seen.expand(list(shape)).reshape([size for _, size in sizes]).permute(order).reshape(lengths)
    if not bool((heads == heads[:1]).all()):
        raise NoProgram("its heads have different masks")
    return heads[0]
