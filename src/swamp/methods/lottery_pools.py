"""Lottery pools (Yin et al. 2023): greedy interpolation between the solutions of neighbouring cycles of IMP.

    θ ← w_i
    for j in i−1, i+1, i−2, i+2, …:
        a* ← best a by validation of  Prune_i(a w_j + (1 − a) θ)         re-pruned to cycle i's density, BatchNorm recomputed
        θ ← that, if its validation accuracy is strictly better

IMP does not train on the validation examples here, and nothing is selected on the test set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from swamp.core.job import Solution
from swamp.methods import imp
from swamp.methods.method import Context, Keep, Row

name = "lottery-pools"
paper = "Yin et al. 2023, Lottery pools: winning more by interpolating tickets without increasing training or inference cost"
summary = "IMP, then for each cycle a greedy mixture with the solutions of its neighbours, chosen by validation accuracy."
cost = "1, and many evaluations"
exact = True
nested = False
needs: Keep = "averages"  # Neighbouring cycles are needed until the end.
uses = ("average",)
notes = (
    "A tenth of the training set is held out (5,000 of CIFAR-10), unless the task says how much. Candidates are visited once, nearest "
    "first; the best share of each is kept if it is strictly better. Each row takes an evaluation, with BatchNorm "
    "recomputed, for each candidate and share; where pruning.targets is set, only the rows that it names are made."
)
selects = True

CandidateShare = Annotated[float, Meta(gt=0, lt=1)]
SHARES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The greedy search."""

    candidates: Annotated[int, Meta(ge=0, le=1000, description="Neighbouring cycles that are tried.")] = 7
    shares: Annotated[tuple[CandidateShare, ...], Meta(min_length=1, description="Shares of the candidate that are tried.")] = SHARES


def run(ctx: Context, config: Config) -> Iterator[Row]:
    tickets = list(imp.cycles(ctx))
    for row in (tickets[cycle] for cycle in ctx.pruning.targets or range(len(tickets))):
        keep = ctx.pruning.density(row.cycle)
        current, mask = row.solution, row.mask
        best = accuracy(ctx, current)
        for neighbour in neighbours(row.cycle, len(tickets), config.candidates):
            candidate = tickets[neighbour].solution
            shares = ctx.counted(config.shares, f"cycle {row.cycle} with {neighbour}", "mixture")
            found, share = max(
                ((accuracy(ctx, ctx.mix([(a, candidate), (1 - a, current)], keep, trial=True)), a) for a in shares),
                key=lambda pair: pair[0],
            )
            if found > best:
                best, current = found, ctx.mix([(share, candidate), (1 - share, current)], keep)
                mask = ctx.mask(current)
        yield Row(row.cycle, mask, current)


def accuracy(ctx: Context, solution: Solution) -> float:
    """Return the validation accuracy, or the metric that counts for the task, with the sign that makes larger better."""
    found = ctx.evaluate(solution, "validation")[ctx.task.metric]
    return found if ctx.task.metrics[ctx.task.metric].maximise else -found


def neighbours(cycle: int, num_cycles: int, count: int) -> list[int]:
    """Return the nearest cycles, with the earlier of two equally near ones first.

    >>> neighbours(2, 6, 7)
    [1, 3, 0, 4, 5]
    """
    around = (cycle + side * distance for distance in range(1, num_cycles) for side in (-1, 1))
    return [other for other in around if 0 <= other < num_cycles][:count]
