"""Layouts of a run on many GPUs: how ranks are shared between particles and batches, and when each layout would be finished.

A layout has groups of `data` ranks, and each group trains one particle at a time, as in the engine `distributed`. A step of a group takes

    t(d) = fixed + each · B / d + exchange(d),    exchange(d) = 2 (d − 1)/d · S / bandwidth + 2 ⌈log₂ d⌉ · latency · collectives

for a batch of B examples, gradients of S bytes summed around a ring of d ranks, and a few collectives that are too small for bandwidth to
matter. (A rank that is alone, d = 1, trains by compiled and captured steps, and has its own `fixed` and `each`.) Nothing is assumed to
overlap. Particles of one cycle are taken by groups as they become free; a cycle begins when the one before has ended. All of it is
arithmetic: times are given, and nothing is measured here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GRADIENT_BYTES = 4  # Gradients are summed in float32.
FORWARD_SHARE = 1 / 3  # of a training step's time: a forward pass, as for BatchNorm's statistics and for evaluations


@dataclass(frozen=True)
class Cluster:
    """GPUs on hosts, and how fast they exchange bytes. Times are in seconds, rates in bytes a second."""

    num_ranks: int
    per_host: int
    bandwidth: float  # between two ranks of a host
    network: float  # of a host, to all others together
    latency: float  # of one small message
    restart: float = 60.0  # from a lost host to the first step of a new launch, without the host or with another
    checkpoint: float = 15.0  # between two checkpoints, at the least

    @property
    def num_hosts(self) -> int:
        return -(-self.num_ranks // self.per_host)


@dataclass(frozen=True)
class Pace:
    """The time of a step on one rank: `fixed` seconds, and `each` for every example."""

    fixed: float
    each: float

    def step(self, num_examples: float) -> float:
        return self.fixed + self.each * num_examples

    @staticmethod
    def through(times: Sequence[tuple[int, float]]) -> Pace:
        """Return the pace that fits measured times of steps, given as (examples, seconds), best.

        >>> Pace.through([(10, 0.3), (20, 0.5)])
        Pace(fixed=0.1, each=0.02)
        """
        count = len(times)
        mean_size, mean_time = (sum(column) / count for column in zip(*times, strict=True))
        spread = sum((size - mean_size) ** 2 for size, _ in times)
        slope = sum((size - mean_size) * (seconds - mean_time) for size, seconds in times) / spread if spread else mean_time / mean_size
        # A step of no examples takes no negative time, and one more example does not make it shorter.
        each = min(max(slope, 0.0), mean_time / mean_size)
        return Pace(round(max(mean_time - each * mean_size, 0.0), 12), round(each, 12))


@dataclass(frozen=True)
class Workload:
    """What a run has to do, in the units of the model above."""

    # The epochs of each particle of each round; one of small images is a part of an epoch. A round begins when the one before has ended.
    rounds: Sequence[Sequence[float]]
    batch_size: int
    steps_per_epoch: int
    num_parameters: int
    num_norms: int  # BatchNorm layers, each of which exchanges moments four times a step where ranks share a batch
    averages: bool  # whether statistics are recomputed for the average of each round, by one pass over the data on one rank
    state_bytes: int  # of one network
    example_bytes: int  # that are read from disk for one example

    @property
    def num_epochs(self) -> float:
        return sum(sum(epochs) for epochs in self.rounds)


@dataclass(frozen=True)
class Prediction:
    """What a layout is predicted to take."""

    data: int  # ranks of a group
    groups: int
    step_seconds: float
    exchange_seconds: float  # the part of a step in which ranks wait for sums
    seconds: float
    busy: float  # the share of all ranks' time in which they train
    examples_per_second: float  # of all ranks together, while all train
    sent_bytes: float  # by each rank in a step
    read_rate: float  # bytes that a host reads from disk in a second, while all train
    lost_seconds: float  # by all ranks when a host is lost: half of the time between checkpoints on average, and the restart
    seconds_without_host: float | None  # if the run is begun with one host less; None if there is none left


def exchange_seconds(cluster: Cluster, work: Workload, data: int) -> float:
    """Return the time in which the ranks of a group sum gradients and moments of BatchNorm."""
    if data == 1:
        return 0.0
    size = GRADIENT_BYTES * work.num_parameters
    # Groups that do not fill a host are all inside one, or else some of them reach over the network.
    inside = cluster.num_hosts == 1 or cluster.per_host % data == 0
    rate = cluster.bandwidth if inside else min(cluster.bandwidth, cluster.network)
    hops = 2 * math.ceil(math.log2(data))  # Small sums go up and down a tree.
    return 2 * (data - 1) / data * size / rate + hops * cluster.latency * (1 + 4 * work.num_norms)


def makespan(epochs: Iterable[float], groups: int) -> float:
    """Return when the last group is done, if each takes the next training when it is free.

    >>> makespan([3, 3, 3], 2), makespan([2, 2, 4], 2)
    (6.0, 6.0)
    """
    epochs = list(epochs)
    free = [0.0] * min(groups, len(epochs))  # More groups than trainings change nothing.
    for length in epochs:
        heapq.heappush(free, heapq.heappop(free) + length)
    return max(free, default=0.0)


@dataclass(frozen=True)
class Paces:
    """The pace of a rank that trains a particle alone, and of one that shares its batches with others."""

    alone: Pace
    shared: Pace

    def of(self, data: int) -> Pace:
        return self.alone if data == 1 else self.shared


def predict(cluster: Cluster, work: Workload, paces: Paces, data: int) -> Prediction:
    """Predict what a layout with groups of `data` ranks takes."""
    groups = cluster.num_ranks // data
    exchange = exchange_seconds(cluster, work, data)
    step = paces.of(data).step(work.batch_size / data) + exchange
    epoch = step * work.steps_per_epoch
    one_rank = paces.alone.step(work.batch_size) * work.steps_per_epoch
    passes = len(work.rounds) * one_rank * FORWARD_SHARE if work.averages else 0.0

    def run_seconds(num_groups: int) -> float:
        return sum(makespan(trainings, num_groups) for trainings in work.rounds) * epoch + passes

    seconds, rate = run_seconds(groups), work.batch_size / step * groups
    groups_without_host = (cluster.num_ranks - cluster.per_host) // data
    return Prediction(
        data=data,
        groups=groups,
        step_seconds=step,
        exchange_seconds=exchange,
        seconds=seconds,
        busy=work.num_epochs * epoch / (seconds * groups) if seconds else 0.0,
        examples_per_second=rate,
        sent_bytes=2 * (data - 1) / data * GRADIENT_BYTES * work.num_parameters,
        read_rate=rate / cluster.num_hosts * work.example_bytes,
        lost_seconds=max(cluster.checkpoint, epoch) / 2 + cluster.restart,  # Checkpoints are written at ends of epochs.
        seconds_without_host=run_seconds(groups_without_host) if groups_without_host > 0 else None,
    )


def group_sizes(num_ranks: int, batch_size: int) -> list[int]:
    """Return how many ranks a group can have, if all groups have equally many and each rank has at least one example of a batch."""
    return [data for data in range(1, min(num_ranks, batch_size) + 1) if num_ranks % data == 0]


def layouts(cluster: Cluster, work: Workload, paces: Paces) -> list[Prediction]:
    """Predict all layouts."""
    return [predict(cluster, work, paces, data) for data in group_sizes(cluster.num_ranks, work.batch_size)]
