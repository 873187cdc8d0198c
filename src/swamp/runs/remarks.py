"""What users should know of a run's settings before it trains, and readers of its rows: trainings and numbers that cannot mean much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from swamp.core.job import Job, Solution
from swamp.core.patterns import Pattern
from swamp.core.rules import RigL
from swamp.drawing.numbers import percent
from swamp.methods.method import Row
from swamp.runs.config import Config
from swamp.runs.context import RunContext
from swamp.runs.plan import Plan
from swamp.runs.rates import rate_remarks
from swamp.tasks import own_loop
from swamp.tasks.measuring import no_shares
from swamp.tasks.own.remarks import some
from swamp.tasks.task import MOST_EPOCHS, Task, stretches

LOW_SHARE = 0.1  # of the peak rate
FEW_ERRORS = 20  # With more, no half of the examples is without one.


def plan_remarks(config: Config, task: Task, plan: Plan) -> list[str]:
    """Return sentences about what was asked for, to be said before anything is trained."""
    averaging = next((job for job in plan.jobs if job.swa), None)
    if getattr(task, "own_optimizer", None):
        rates = low_rates(task, averaging) if averaging else []
    else:
        rates = rate_remarks(config, averaging is not None, has_ticket=plan.ticket is not None)
    buffers = outdated_buffers(task) if averaging or any(len(jobs) > 1 for _, jobs in plan.rows) else []
    others = [*unreached_sizes(task, plan), *idle_rules(config, task, plan.jobs), *left_over_channels(config, task, plan)]
    return [*rates, *buffers, *kept_elsewhere(task), *others]


def outdated_buffers(task: Task) -> list[str]:
    """Name buffers that change in training, where weights are averaged: the average cannot have values that belong to it."""
    if not (names := getattr(task, "moving_buffers", [])):
        return []
    return [
        f"tensors of the model that are no parameters change while it is trained ({some(names)}): averaged networks have them as they were "
        "in the ticket (only statistics of BatchNorm and InstanceNorm are computed anew); a method that averages nothing, such as imp, "
        "keeps them"
    ]


def kept_elsewhere(task: Task) -> list[str]:
    """Say so if a model or its loss keeps something that no state has."""
    if not getattr(task, "keeps_something", False):
        return []
    return [
        "the loss of the same examples, weights and random draws changes from call to call: the model or the loss keeps something that is "
        "no parameter and no buffer, such as a counter; stored networks and trainings that are resumed have it as it is at first "
        "(register_buffer makes it part of the model)"
    ]


def unreached_sizes(task: Task, plan: Plan) -> list[str]:
    """Say so if images are to have another size in epochs that no training has."""
    longest = max((job.end_epoch for job in plan.jobs), default=0)
    beyond = [stretch.start for stretch in stretches(task, 0, MOST_EPOCHS) if stretch.start >= longest]
    if not beyond:
        return []
    return [f"tasks.image.sizes names sizes from epoch {beyond[0]} on, but no training has more than {longest} epochs: they are never used"]


def low_rates(task: Any, job: Job) -> list[str]:
    """Say so if an own schedule has low rates where the weights of this job are averaged."""
    assert job.swa is not None
    if task.own_optimizer.schedule is None:
        return []
    rates = task.own_optimizer.rates(task.model(), job.schedule, task.steps_per_epoch, job.swa)
    advice = f"a rate that stays higher after {job.swa.start:g} of the steps, or a smaller swa.start, may help"
    return _low_rate(rates, job.swa.start_epoch(job.schedule.epochs) * task.steps_per_epoch, "your schedule's", advice)


def low_rates_of_loops(trainings: Iterable[tuple[Job, Solution]]) -> list[str]:
    """Say so if a loop of the user's own has low rates where weights are averaged. They are known when it has trained."""
    found = []
    for job, solution in trainings:
        rates = [record["learning_rate"] for record in solution.history if "learning_rate" in record]
        if job.swa and rates and len(rates) == len(solution.history):
            found += _low_rate(rates, job.swa.start_epoch(len(rates)), "your loop's", "while run.averaging is true, hold the rate higher")
    return found[:1]  # Every training has the same schedule.


def _low_rate(rates: Sequence[float], start: int, whose: str, advice: str) -> list[str]:
    """Say so if learning rates are low from `start` on, where weights are averaged."""
    window, peak = rates[start:], max(rates)
    mean = sum(window) / len(window)
    if mean >= LOW_SHARE * peak:
        return []
    return [
        f"{whose} learning rate is {mean:.3g} on average while weights are averaged, under a tenth of its peak {peak:.3g}: "
        f"weights that hardly move gain little by averaging; {advice}"
    ]


def idle_rules(config: Config, task: Task, jobs: Iterable[Job]) -> list[str]:
    """Name RigL's interval if it is longer than a training."""
    found = []
    for job in jobs:
        num_steps = job.schedule.epochs * task.steps_per_epoch
        if isinstance(job.rule, RigL) and job.rule.never_acts(num_steps):
            found.append(
                f"RigL never changes its mask, so that this is random pruning: methods.{config.method_module.name}.interval = "
                f"{job.rule.interval} steps, and the mask may change in the first {math.ceil(job.rule.until * num_steps)} steps"
            )
    return list(dict.fromkeys(found))


def left_over_channels(config: Config, task: Task, plan: Plan) -> list[str]:
    """Say so if an N:M pattern misses the last sparsity, because it never prunes channels that make no whole group."""
    pattern, last = Pattern.parse(config.pruning.pattern), plan.rows[-1][0].mask
    if pattern.kind != "n:m" or last.num_survivors >= (least := pattern.num_kept(task.prunable)):
        return []
    wanted, reached = (percent(1 - number / last.num_weights) for number in (last.num_survivors, least))
    return [
        f"pruning.pattern = {config.pruning.pattern!r} keeps input channels that make no whole group of {pattern.sizes[1]}, so that this "
        f"run reaches {reached} % sparsity, not {wanted} %; `exclude` leaves such layers out"
    ]


def row_notes(ctx: RunContext, row: Row, metrics: Mapping[str, float], trainings: Sequence[tuple[Job, Solution]]) -> list[str]:
    """Return clauses about a row whose numbers do not mean what they seem to, for the notes of tables. `trainings`: those of the row."""
    found = [*row.notes, *no_shares(metrics), *idle_rules(ctx.config, ctx.task, (job for job, _ in trainings))]
    if ctx.config.task == own_loop.name:
        found += low_rates_of_loops(trainings)
    if row.mask.num_survivors == row.mask.num_weights:
        found += nothing_learnt(ctx, metrics)
    if _may_be_at_its_bound(ctx.task, metrics) and ctx.temperature_is_at_its_bound(row.solution):
        found.append("the calibrated NLL may not be the lowest: a fitted temperature is at a limit of its range")
    return list(dict.fromkeys(found))


def nothing_learnt(ctx: RunContext, metrics: Mapping[str, float]) -> list[str]:
    """Say so if a dense network is no better than guesses, or than one answer for all examples."""
    metric, constant = ctx.task.metrics[ctx.task.metric], ctx.constant_answer()
    value, sign = metrics[metric.name], 1 if metric.maximise else -1
    if "accuracy" in metrics and (blind := blind_accuracy(ctx.task)) is not None and metrics["accuracy"] <= blind:
        compared = f"accuracy, {percent(metrics['accuracy'])} %, is no better than naming classes blindly (up to {percent(blind)} %)"
    elif metric.name in constant and sign * value <= sign * constant[metric.name]:
        mine, answer = metric.with_unit(metric.text(value)), metric.text(constant[metric.name])
        compared = f"{mine} is no better than that of one answer for all examples ({answer})"
    else:
        return []
    return [f"the dense network's {compared}: it has learnt nothing, so that sparse networks made from it say little"]


def blind_accuracy(task: Task) -> float | None:
    """Return an accuracy on the test set that needs no look at the examples: that of the most frequent class, or two standard errors above
    that of random guesses. None where the number of classes is not known, and where so few examples tell nothing."""
    if not task.num_classes:
        return None
    chance, count = 1 / task.num_classes, task.size("test")
    labels = getattr(task, "all_labels", lambda split: None)("test")
    most = int(labels.unique(return_counts=True)[1].max()) / len(labels) if labels is not None and len(labels) else 0.0
    blind = max(most, chance + 2 * math.sqrt(chance * (1 - chance) / count))
    return blind if blind <= 1 else None


def _may_be_at_its_bound(task: Task, metrics: Mapping[str, float]) -> bool:
    """Return whether it is worth to look at the temperatures: they leave their range where half of the examples has no error, or where the
    outputs say nothing of the labels."""
    if not task.num_classes or not {"accuracy", "calibrated_nll"} <= metrics.keys():
        return False
    num_errors = (1 - metrics["accuracy"]) * task.size("test")
    return num_errors < FEW_ERRORS or metrics["calibrated_nll"] > 0.98 * math.log(task.num_classes)
