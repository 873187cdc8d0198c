"""Between solutions: linear connectivity, the convex hull of particles, stability."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from swamp.analyses.rows import Arrays, about, kept, sentence, several
from swamp.analyses.study import CachedStep, Study, Work, encoded, finite
from swamp.landscape.connectivity import barrier, between, dirichlet, hull_excess
from swamp.store.records import RowRecord
from swamp.tasks.task import dense_mask


def connectivity(study: Study) -> Work:
    """Straight paths between the solutions of successive cycles, and between a cycle's particles."""
    rows = [row for row in study.rows if study.has(row.solution)]
    lacking = [row for row in study.rows if not study.has(row.solution)]
    notes = [sentence(study, "the solution", lacking, "averages")] if lacking else []
    pairs = [(f"cycle {a.cycle} to {b.cycle}", "cycles", b, a.solution, b.solution) for a, b in pairwise(rows)]
    with_particles = [row for row in study.rows if len(row.particles) > 1]
    for row in with_particles:
        if all(map(study.has, row.particles)):
            for i, (a, b) in enumerate(pairwise(row.particles)):
                pairs.append((f"cycle {row.cycle}, particles {i} and {i + 1}", "particles", row, a, b))
    if dropped := [row for row in with_particles if not all(map(study.has, row.particles))]:
        notes.append(sentence(study, "the particles", dropped, "all"))
    if not pairs:
        raise ValueError(" ".join(["connectivity needs two solutions, and there are not two here.", *notes]))
    paths = [(label, kind, row, _path(study, a, b)) for label, kind, row, a, b in pairs]

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = [{"label": label, "kind": kind, **about(row), **_followed(study, path)} for label, kind, row, path in paths]
        return {"lambdas": between(study.settings.points), "examples": study.setting.num_examples, "paths": found}, {}

    return Work("connectivity", finish, [piece for *_, path in paths for piece in path], notes=notes)


def _path(study: Study, first: str, second: str) -> list[CachedStep]:
    return [study.point((1 - x, first), (x, second)) for x in between(study.settings.points)]


def _followed(study: Study, path: Sequence[CachedStep]) -> dict[str, Any]:
    """Values along a path, and both barriers of each."""
    values = [study.values(piece) for piece in path]
    xs = between(study.settings.points)
    series = {name: [value[name] for value in values] for name in values[0]}
    barriers = {name: msgspec.to_builtins(barrier(xs, numbers)) for name, numbers in series.items()}
    return {
        "values": {name: list(map(encoded, numbers)) for name, numbers in series.items()},
        "barriers": {name: finite(both) for name, both in barriers.items()},
    }


def hull(study: Study) -> Work:
    """Random mixtures of a cycle's particles."""
    rows, notes = kept(study, "particles", several, "all")
    mixtures = {row.cycle: dirichlet(study.setting.noise.fold("hull"), len(row.particles), study.settings.samples) for row in rows}

    def points(row: RowRecord, shares: Iterable[Sequence[float]]) -> list[CachedStep]:
        return [study.point(*zip(share, row.particles, strict=True)) for share in shares]

    corners = {row.cycle: [study.point((1.0, key)) for key in row.particles] for row in rows}
    inside = {row.cycle: points(row, mixtures[row.cycle]) for row in rows}
    middle = {row.cycle: points(row, [[1 / len(row.particles)] * len(row.particles)])[0] for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = []
        for row in rows:
            at_corners, at_points = ([study.values(piece) for piece in group[row.cycle]] for group in (corners, inside))
            names = list(at_corners[0])
            barriers = {n: hull_excess(mixtures[row.cycle], [v[n] for v in at_points], [v[n] for v in at_corners]) for n in names}
            found.append(
                {
                    **about(row),
                    "mixtures": mixtures[row.cycle],
                    "values": {name: [encoded(value[name]) for value in at_points] for name in names},
                    "corners": {name: [encoded(value[name]) for value in at_corners] for name in names},
                    "mean": finite(study.values(middle[row.cycle])),
                    "barriers": {name: finite(msgspec.to_builtins(both)) for name, both in barriers.items()},
                }
            )
        return {"samples": study.settings.samples, "examples": study.setting.num_examples, "rows": found}, {}

    pieces = [piece for row in rows for piece in (*corners[row.cycle], *inside[row.cycle], middle[row.cycle])]
    return Work("hull", finish, pieces, notes=notes)


def stability(study: Study) -> Work:
    """Two dense trainings from the random init against two from the ticket, each pair with two noises."""
    maker = study.maker
    if not maker.has_ticket:
        raise ValueError("stability compares trainings from the ticket with trainings from the init, and this run has no ticket")
    init = study.analysis_store.solution(maker.init_key)
    ticket = init and study.analysis_store.solution(maker.ticket_job(init).key)
    if not init or not ticket or not all(study.has(start.key) for start in (init, ticket)):
        raise ValueError(f"stability needs the run's init and ticket, and they are not in {study.directory}")
    starts = {"the init": init, "the ticket": ticket}
    noises = list(maker.noise.split("stability", 2))
    jobs = {name: [maker.job(start, dense_mask(study.task), noise) for noise in noises] for name, start in starts.items()}
    paths = {name: _path(study, first.key, second.key) for name, (first, second) in jobs.items()}

    def finish() -> tuple[dict[str, Any], Arrays]:
        study.train([job for pair in jobs.values() for job in pair])
        found = [{"label": f"two trainings from {name}", "kind": name, **_followed(study, path)} for name, path in paths.items()]
        return {"lambdas": between(study.settings.points), "examples": study.setting.num_examples, "paths": found}, {}

    pieces = [piece for path in paths.values() for piece in path]
    return Work("stability", finish, pieces, [job for pair in jobs.values() for job in pair])
