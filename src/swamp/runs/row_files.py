"""The files of a run's rows: their records, links to their weights and masks, and which weights stay on disk."""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET, structs

from swamp.core.cost import masked_macs
from swamp.methods.method import Row
from swamp.runs.context import RunContext
from swamp.store.records import RowRecord


def make_record(ctx: RunContext, row: Row) -> RowRecord:
    """Evaluate a row and return its record."""
    task, mask = ctx.task, row.mask
    taken = {solution.key for solution in row.trainings} if row.trainings is not None else None
    trainings = [(job, solution) for job, solution in ctx.trainings if taken is None or job.key in taken]
    several = len(row.members) > 1
    num_parameters = sum(p.numel() for p in task.model().parameters())
    ctx.store.save_mask(mask)
    record = RowRecord(
        cycle=row.cycle,
        sparsity=1 - mask.density,
        sparsity_of_all=(mask.num_weights - mask.num_survivors) / num_parameters,
        num_survivors=mask.num_survivors,
        num_prunable=mask.num_weights,
        metric=task.metric,
        metrics=ctx.evaluate(row.solution, "test"),
        members=[ctx.evaluate(member, "test") for member in row.members] if several else [],
        densities=dict(mask.densities),
        empty_layers=[name for name, density in mask.densities.items() if density == 0],
        macs=masked_macs(task.macs, mask),
        cost=sum(ctx.macs(job, solution) for job, solution in trainings if job.key != ctx.ticket_key),
        training_macs=sum(ctx.training_macs(job, solution) for job, solution in trainings),
        solution=row.solution.key,
        mask=mask.digest,
        particles=[member.key for member in row.members],
        descriptions=list(task.metrics.values()),
        selected_on="validation" if ctx.config.method_module.selects else UNSET,
    )
    return structs.replace(record, checksum=record.expected_checksum())


def write_rows(ctx: RunContext, row: Row, records: list[RowRecord]) -> None:
    """Write the readable files up to the row that was finished last. All of them follow from the objects, so they are written anew."""
    _link(ctx, row)
    ctx.store.write_text("results.json", json.dumps(msgspec.to_builtins(records), indent=1, sort_keys=True) + "\n")
    lines = [{"training": job.label, **epoch} for job, solution in ctx.trainings for epoch in solution.history]
    ctx.store.write_text("metrics.jsonl", "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))


def drop_unkept(ctx: RunContext, row: Row, next_row: Row | None = None) -> None:
    """Drop the weights of a row that `keep` does not keep, but not those that the next row needs too; the last row has no next one."""
    keep, unwanted = ctx.config.keep, set()
    if keep != "all":
        unwanted |= {member.key for member in row.members} - {row.solution.key}
    if keep == "last" and next_row:
        unwanted |= {row.solution.key}
    needed = {next_row.solution.key, *(member.key for member in next_row.members)} if next_row else set()
    for key in unwanted - needed:
        ctx.store.drop(key)
    if unwanted:
        _link(ctx, row)


def drop_all_unkept(ctx: RunContext, rows: list[Row]) -> None:
    """Drop the weights that a finished run does not keep, those included that belong to no row."""
    drop_unkept(ctx, rows[-1])
    if ctx.config.keep == "all":
        return
    kept = {row.solution.key for row in rows} if ctx.config.keep == "averages" else {rows[-1].solution.key}
    made = {solution.key for _, solution in ctx.trainings} | ctx.mixed | ctx.remade
    for key in made - kept - {ctx.ticket_key}:
        ctx.store.drop(key)


def _link(ctx: RunContext, row: Row) -> None:
    particles = {f"particle-{index}": member.key for index, member in enumerate(row.members)}
    ctx.store.link_row(row.cycle, {"mask": row.mask.digest, "average": row.solution.key, **particles})
