"""The pattern `coupled`: a channel is pruned in all layers that write or read it, so that the whole network gets narrower.

Sums, norms, depthwise convolutions and concatenations couple layers: the third channel of a residual stream is the third filter of every
convolution that adds to the stream, and the third input channel of every one that reads it. A `Coupling` lists, as data, which indices of
which weights belong to which channel; `export/channels/graph.py` reads it from the graph of a model. A weight belongs to two channels, the
one that it reads and the one that it writes, and is pruned with the first of them that goes.

Channels of the same layers are a group, such as a residual stream or the inside of a block. With `coupled:8` so many channels go at a time
that a multiple of eight is left of each group, which suits the vector units that compute them. The last channels of a group never go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise

import torch
from msgspec import Struct
from torch import Tensor

from swamp.core.patterns import KEPT

# Ranges of channels: (first channel, number of channels, indices of each channel). Indices that never go are one range of the channel KEPT.
Ranges = tuple[tuple[int, int, int], ...]


class Coupling(Struct, frozen=True, forbid_unknown_fields=True):
    """Which weights belong to which channel. Channels are numbered group by group."""

    widths: tuple[int, ...]  # the number of channels of each group
    weights: dict[str, tuple[Ranges, Ranges]]  # the channels along the first and the second dimension of each prunable weight

    @property
    def num_channels(self) -> int:
        return sum(self.widths)

    def channels(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the channel of each index of a weight's first and second dimension."""
        first, second = self.weights[name]
        return expanded(first), expanded(second)


def as_ranges(channels: Iterable[int]) -> Ranges:
    """Write channel numbers as ranges.

    >>> as_ranges([-1, -1, 4, 4, 5, 5, 0, 1, 2])
    ((-1, 1, 2), (4, 2, 2), (0, 3, 1))
    """
    ranges: list[tuple[int, int, int]] = []
    for channel, alike in groupby(channels):
        each = sum(1 for _ in alike)
        if ranges and KEPT not in (channel, ranges[-1][0]) and (ranges[-1][0] + ranges[-1][1], ranges[-1][2]) == (channel, each):
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1, each)
        else:
            ranges.append((channel, 1, each))
    return tuple(ranges)


def expanded(ranges: Ranges) -> Tensor:
    """Return the channel number of each index.

    >>> expanded(((-1, 1, 2), (4, 2, 2), (0, 3, 1))).tolist()
    [-1, -1, 4, 4, 5, 5, 0, 1, 2]
    """
    return torch.cat([torch.arange(first, first + count).repeat_interleave(each) for first, count, each in ranges])


def keep_highest_channels(
    scores: Mapping[str, Tensor], alive: Mapping[str, Tensor], num: int, coupling: Coupling, multiple: int, evenly: bool
) -> dict[str, Tensor]:
    """Prune channels until at most `num` weights are left, and return which weights stay.

    Those with the lowest mean score of their weights go first, or, if `evenly`, the same share of every group goes, lowest first.
    """
    steps = _steps(_mean_scores(scores, alive, coupling), coupling.widths, multiple, evenly)
    weight_steps, left = _weights_left(steps, alive, coupling)
    enough = (left <= num).nonzero()
    if not len(enough):
        raise ValueError(f"the pattern leaves at least {int(left[-1])} weights, but {num} are asked for: prune less, or in another pattern")
    done = int(enough[0])
    return {name: layer & (weight_steps[name] >= done) for name, layer in alive.items()}


def fewest_coupled_weights(shapes: Mapping[str, tuple[int, ...]], coupling: Coupling, multiple: int) -> int:
    """Return how many weights are left where all channels have gone that may go."""
    alive = {name: torch.ones(shape, dtype=torch.bool) for name, shape in shapes.items()}
    steps = _steps(torch.zeros(coupling.num_channels), coupling.widths, multiple, evenly=True)
    return int(_weights_left(steps, alive, coupling)[1][-1])


def _mean_scores(scores: Mapping[str, Tensor], alive: Mapping[str, Tensor], coupling: Coupling) -> Tensor:
    """Return the mean score of each channel's surviving weights, and NaN for channels that have none left."""
    totals, sizes = torch.zeros(2, coupling.num_channels + 1).double()  # The last entry is for weights that are never pruned.
    for name, layer in alive.items():
        score = torch.where(layer, scores[name].double(), 0.0)
        for dimension, channels in enumerate(coupling.channels(name)):
            others = [index for index in range(layer.ndim) if index != dimension]
            totals.index_add_(0, channels % len(totals), score.sum(others))
            sizes.index_add_(0, channels % len(sizes), layer.sum(others).double())
    return (totals / sizes)[:-1]


def _steps(means: Tensor, widths: tuple[int, ...], multiple: int, evenly: bool) -> Tensor:
    """Return the number of the step at which each channel goes. Channels that stay have the number after the last step, and those that have
    gone before, whose mean is NaN, have 0."""
    found: list[tuple[float, Tensor]] = []  # for each step what it is ranked by, and its channels
    for channels, scores in zip(torch.arange(len(means)).split(widths), means.split(widths), strict=True):
        living = channels[~scores.isnan()]
        order = living[means[living].argsort(stable=True)]
        for begin, end in pairwise(_borders(len(order), multiple)):
            found.append((end / len(order) if evenly else float(means[order[begin:end]].mean()), order[begin:end]))
    steps = torch.where(means.isnan(), 0, len(found))
    for number, (_, channels) in enumerate(sorted(found, key=lambda step: step[0])):
        steps[channels] = number
    return steps


def _borders(num: int, multiple: int) -> list[int]:
    """Return after how many of a group's channels each step ends, such that a multiple is left and the last ones stay.

    >>> _borders(20, 8), _borders(16, 8), _borders(4, 1), _borders(5, 8)
    ([0, 4, 12], [0, 8], [0, 1, 2, 3], [0])
    """
    return [0, *range((num - 1) % multiple + 1, num - multiple + 1, multiple)] if num > multiple else [0]


def _weights_left(steps: Tensor, alive: Mapping[str, Tensor], coupling: Coupling) -> tuple[dict[str, Tensor], Tensor]:
    """Return the step at which each weight goes, and the number of weights that are left before each step and after the last one."""
    never = int(steps.max()) if len(steps) else 0
    of_channel = torch.cat([steps, torch.tensor([never])])  # KEPT is -1, which indexes the last entry.
    found = {}
    for name, layer in alive.items():
        rows, columns = (of_channel[channels] for channels in coupling.channels(name))
        both = torch.minimum(rows[:, None], columns[None, :])
        found[name] = both.reshape(*both.shape, *[1] * (layer.ndim - 2)).expand(layer.shape)
    going = torch.zeros(never + 1, dtype=torch.long)
    for name, layer in alive.items():
        going += torch.bincount(found[name][layer], minlength=never + 1)
    return found, going.flip(0).cumsum(0).flip(0)
