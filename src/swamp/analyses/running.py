"""Plans analyses of a study, estimates what they will take, and runs them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch

from swamp.analyses.analysis import Analysis, Result
from swamp.analyses.study import EPOCH, POINT, PRODUCT, Study, Work, settings_of
from swamp.landscape.point import Split
from swamp.runs.bench import step_timer


def plan_analyses(study: Study, kinds: Iterable[Analysis]) -> tuple[dict[str, Work], list[str]]:
    """Return the work of each kind that this run has the data for, by name, and sentences about what is left out."""
    if study.analysis_store.root.exists():  # what is stored is read to see what is left to do
        with study.analysis_store.locked():
            study.analysis_store.put_aside_damaged()
    works, notes = {}, []
    for kind in kinds:
        settings = settings_of(kind.Settings, study.options)
        try:
            works[kind.name] = kind.plan(study, settings)
        except ValueError as error:
            notes.append(str(error))
    if not works:
        raise ValueError("; ".join(dict.fromkeys(notes)))
    return works, list(dict.fromkeys([*notes, *(note for work in works.values() for note in work.notes)]))


def run_analyses(study: Study, works: Mapping[str, Work]) -> dict[str, Result]:
    """Do the work; each result is written as soon as it is there."""
    store, found = study.analysis_store, {}
    with store.locked():
        store.clear_temporaries()
        at_most = [name for name, work in works.items() if work.at_most]
        study.listener.begin(work_left(study, works), partial(seconds_per_unit, study, works), at_most)
        for name, work in works.items():
            found[name], arrays = work.finish()
            store.write_result(name, found[name], arrays)
        store.clear_work()
    return found


def work_left(study: Study, works: Mapping[str, Work]) -> dict[str, dict[str, int]]:
    """Count the work that is not stored yet, by analysis and by kind of work. What several analyses need counts for the first of them."""
    seen: set[str] = set()
    left: dict[str, dict[str, int]] = {}
    for name, work in works.items():
        counts = left.setdefault(name, {})
        for key, kind, units in _units_left(study, work):
            if key not in seen:
                seen.add(key)
                counts[kind] = counts.get(kind, 0) + units
    return left


def _units_left(study: Study, work: Work) -> Iterator[tuple[str, str, int]]:
    for job in work.jobs:
        if study.analysis_store.solution(job.key) is None:
            yield job.key, EPOCH, job.num_epochs
    for step in work.steps:
        if not study.is_stored(step):
            yield step.key, step.kind, step.units


def seconds_per_unit(study: Study, works: Mapping[str, Work]) -> dict[str, float]:
    """Measure how long a unit of each kind of work takes on this machine, if possible by doing work that is needed anyway."""
    kinds = {kind for counts in work_left(study, works).values() for kind in counts}
    found: dict[str, float] = {}
    if POINT in kinds:
        # Points of networks that are still to be trained cannot be measured yet.
        points = [step for work in works.values() if not work.jobs for step in work.steps if step.kind == POINT]
        ready = {step.key: step for step in points if not study.is_stored(step)}
        for step in sorted(ready.values(), key=lambda step: step.units)[:2]:  # the first warms up
            begin = time.monotonic()
            study.get(step)
            found[POINT] = (time.monotonic() - begin) / step.units
    row = next((row for row in study.rows if study.has(row.solution)), None)
    if PRODUCT in kinds and row:
        split: Split = study.options.get("split", "train")
        hessian = study.hessian(row.solution, row.mask, split, num_batches=1)
        hessian(torch.zeros(1, hessian.size))
        begin = time.monotonic()
        hessian(torch.zeros(3, hessian.size))
        found[PRODUCT] = (time.monotonic() - begin) / 3 * len(study.hessian_batches(split))
    if EPOCH in kinds:
        with step_timer(study.config, study.task) as (num_parallel, step_seconds):
            count = min(num_parallel, 4)
            found[EPOCH] = step_seconds(count) * study.task.steps_per_epoch / count
    return found
