"""The analyses of a run: which points, probes and trainings each is made of, and how its result follows from them.

An analysis is a function from a study to its work; it raises `ValueError` with a sentence where the run lacks what it needs. Their names
are the options of `swamp analyse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import msgspec
import torch

from swamp.analysis.calibration import reliability
from swamp.analysis.connectivity import barrier, between, dirichlet, hull_excess
from swamp.analysis.hessian import Spectrum, lanczos, probe_traces, spectral_density, trace_of
from swamp.analysis.masks import overlap
from swamp.analysis.particles import distances, norm
from swamp.analysis.point import measured
from swamp.analysis.surface import Plane, grid
from swamp.runs.annex import Annex
from swamp.runs.runner import Result, read_results
from swamp.runs.study import PRODUCT, Piece, Study, Work, encoded, finite
from swamp.tasks.task import dense_mask
from swamp.training.numerics import applied, autocast

CHUNK = 10  # probes that are stored together
NUM_TOP = 5  # eigenvalues shown
Arrays = dict[str, Any]


def hessian(study: Study) -> Work:
    """Trace with its standard error, largest eigenvalues, density of the spectrum."""
    settings = study.settings
    rows, notes = kept(study, "solution", lambda row: [row.solution], "averages")
    probes = {row.cycle: [_probes(study, row, first) for first in range(0, settings.max_probes, CHUNK)] for row in rows}
    spectra = {row.cycle: [_spectrum(study, row, start) for start in range(settings.starts)] for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        found: list[dict[str, Any]] = []
        arrays: Arrays = {}
        traces = {row.cycle: trace_of(map(study.get, probes[row.cycle]), settings.tolerance) for row in rows}
        all_starts = {row.cycle: [msgspec.convert(study.get(piece), Spectrum) for piece in spectra[row.cycle]] for row in rows}
        nodes = [node for starts in all_starts.values() for spectrum in starts for node in spectrum.nodes]
        room = 0.05 * (max(nodes) - min(nodes))
        # one range and one width for all, so that densities can be compared
        at = torch.linspace(min(nodes) - room, max(nodes) + room, 2001, dtype=torch.float64)
        for row in rows:
            trace, starts = traces[row.cycle], all_starts[row.cycle]
            best = max(starts, key=lambda spectrum: spectrum.nodes[-1])
            low = min(spectrum.nodes[0] for spectrum in starts)
            density = spectral_density(starts, at, room / 10)
            arrays |= {f"cycle-{row.cycle}.eigenvalue": at, f"cycle-{row.cycle}.density": density}
            found.append(
                {
                    **about(row),
                    "trace": msgspec.to_builtins(trace),
                    "top_eigenvalues": best.nodes[: -NUM_TOP - 1 : -1],
                    "top_residuals": best.residuals[: -NUM_TOP - 1 : -1],
                    "least_eigenvalue": low,
                    "spectra": msgspec.to_builtins(starts),
                }
            )
        about_all = {"examples": study.setting.num_examples, "tolerance": settings.tolerance, "max_probes": settings.max_probes}
        return {**about_all, "rows": found}, arrays

    needed = (group for group in probes.values() if not _settled(study, group))
    pieces = [piece for group in (*needed, *spectra.values()) for piece in group]
    return Work("hessian", finish, pieces, notes=notes)


def _settled(study: Study, probes: Sequence[Piece]) -> bool:
    """Whether the probes that are stored are enough."""
    stored: list[list[float]] = []
    for piece in probes:
        values = study.annex.read_value(piece.key)
        if values is None:
            break
        stored.append(values)
    return bool(stored) and trace_of(stored, study.settings.tolerance).converged


def _probes(study: Study, row: Result, first: int) -> Piece:
    count = min(CHUNK, study.settings.max_probes - first)

    def make() -> list[float]:
        operator = study.hessian(row.solution, row.mask)
        return probe_traces(operator, operator.size, study.setting.noise, first, count)

    inputs = {"solution": row.solution, "mask": row.mask, "first": first, "count": count}
    return study.piece("trace", inputs, make, PRODUCT, count)


def _spectrum(study: Study, row: Result, start: int) -> Piece:
    steps = study.settings.steps

    def make() -> Any:
        operator = study.hessian(row.solution, row.mask)
        return msgspec.to_builtins(lanczos(operator, operator.size, study.setting.noise.fold("start", start), steps))

    return study.piece("spectrum", {"solution": row.solution, "mask": row.mask, "start": start, "steps": steps}, make, PRODUCT, steps)


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


def _path(study: Study, first: str, second: str) -> list[Piece]:
    return [study.point((1 - x, first), (x, second)) for x in between(study.settings.points)]


def _followed(study: Study, path: Sequence[Piece]) -> dict[str, Any]:
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

    def points(row: Result, shares: Iterable[Sequence[float]]) -> list[Piece]:
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
    init = study.annex.solution(maker.init_key)
    ticket = init and study.annex.solution(maker.ticket_job(init).key)
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


def surface(study: Study) -> Work:
    """Loss and error on the plane through a cycle's first three particles. Of one cycle, the last, unless cycles were chosen."""
    rows, notes = kept(study, "particles", lambda row: several(row, 3), "all")
    rows = rows if study.chosen else rows[-1:]
    settings = study.settings
    planes: dict[int, Plane] = {}

    def plane_of(row: Result) -> Plane:
        if row.cycle not in planes:
            planes.clear()  # three networks in double precision: one plane at a time
            planes[row.cycle] = Plane.through(*(study.state(key) for key in row.particles[:3]))
        return planes[row.cycle]

    def axes(row: Result) -> tuple[list[float], list[float]]:
        plane = plane_of(row)
        return grid([plane.place(study.state(key).parameters) for key in row.particles[:3]], settings.grid, settings.margin)

    def line(row: Result, index: int) -> list[dict[str, float | None]]:
        xs, ys = axes(row)
        plane, buffers = plane_of(row), study.state(row.particles[0]).buffers
        return [finite(measured(study.setting, plane.at(x, ys[index]), buffers, study.batches)) for x in xs]

    def piece(row: Result, index: int) -> Piece:
        inputs = {"particles": row.particles[:3], "grid": settings.grid, "margin": settings.margin, "line": index}
        return study.piece("surface", inputs, partial(line, row, index), units=settings.grid)

    lines = {row.cycle: [piece(row, index) for index in range(settings.grid)] for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        found: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for row in rows:
            values = [study.get(one) for one in lines[row.cycle]]
            plane = plane_of(row)
            xs, ys = axes(row)
            for name in values[0][0]:
                numbers = [[float("nan") if point[name] is None else point[name] for point in one] for one in values]
                arrays[f"cycle-{row.cycle}.{name}"] = numbers
            arrays |= {f"cycle-{row.cycle}.x": xs, f"cycle-{row.cycle}.y": ys}
            particles = [plane.place(study.state(key).parameters) for key in row.particles]
            corners = particles[:3]
            found.append(
                {
                    **about(row),
                    "particles": [list(place) for place in corners],
                    "mean": [sum(values) / 3 for values in zip(*corners, strict=True)],
                    "average": list(plane.place(study.state(row.solution).parameters)) if study.has(row.solution) else None,
                    "num_averaged": len(row.particles),
                    "measures": list(values[0][0]),
                }
            )
        return {"grid": settings.grid, "margin": settings.margin, "examples": study.setting.num_examples, "rows": found}, arrays

    return Work("surface", finish, [one for group in lines.values() for one in group], notes=notes)


def particles(study: Study) -> Work:
    """Each particle beside the average, on the test set; how far they lie apart, and from the solution of the cycle before."""
    rows = [row for row in study.rows if row.members]
    if not rows:
        raise ValueError("particles: no cycle that was asked for has more than one particle")
    near = {row.cycle: _apart(study, row) for row in rows if all(map(study.has, (*row.particles, row.solution)))}
    lacking = [row for row in rows if row.cycle not in near]
    successive = [(a, b, _step(study, a, b)) for a, b in pairwise(row for row in study.rows if study.has(row.solution))]

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = []
        for row in rows:
            apart = study.get(near[row.cycle]) if row.cycle in near else None
            found.append({**about(row), "metric": row.metric, "average": row.metrics, "particles": row.members, "distances": apart})
        steps = [{"from": a.cycle, "to": b.cycle, **study.get(piece)} for a, b, piece in successive]
        return {"rows": found, "successive": steps}, {}

    pieces = [*near.values(), *(piece for *_, piece in successive)]
    notes = [sentence(study, "the particles", lacking, "all")] if lacking else []
    return Work("particles", finish, pieces, notes=notes)


def _apart(study: Study, row: Result) -> Piece:
    keys = [*row.particles, row.solution]
    make = lambda: {"between": distances([study.state(key) for key in keys]), "norm": norm(study.state(row.solution))}  # noqa: E731
    return study.piece("distances", {"networks": keys}, make, kind="")


def _step(study: Study, first: Result, second: Result) -> Piece:
    def make() -> dict[str, float]:
        before, after = study.state(first.solution), study.state(second.solution)
        return {"distance": distances([before, after])[0][1], "norm": norm(before)}

    return study.piece("step", {"networks": [first.solution, second.solution]}, make, kind="")


def masks(study: Study) -> Work:
    """Density of each layer, and how alike the masks of the cycles are."""

    def finish() -> tuple[dict[str, Any], Arrays]:
        found = [study.mask(row) for row in study.rows]
        table = [[msgspec.to_builtins(overlap(a, b)) for b in found] for a in found]
        # results.json sorts names; here they stand in the order of the network
        rows = [{**about(row), "densities": {name: row.densities[name] for name in study.task.prunable}} for row in study.rows]
        return {"rows": rows, "overlap": table}, {}

    return Work("masks", finish)


def calibration(study: Study) -> Work:
    """Reliability curves on the test set."""
    rows, notes = kept(study, "solution", lambda row: [row.solution], "averages")

    def curve(row: Result) -> dict[str, Any]:
        model = study.task.model().to(study.device)
        study.state(row.solution).into(model)
        with applied(study.config.numerics), autocast(study.config.numerics, study.device):
            found = study.task.predict(model, "test")
        if found is None:
            raise ValueError("calibration is of classifiers, and this task gives no class probabilities")
        return dict(msgspec.to_builtins(reliability(*found)))

    pieces = {row.cycle: study.piece("reliability", {"solution": row.solution}, partial(curve, row)) for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        return {"rows": [{**about(row), "metrics": row.metrics, **study.get(pieces[row.cycle])} for row in rows]}, {}

    return Work("calibration", finish, list(pieces.values()), notes=notes)


ANALYSES: dict[str, Callable[[Study], Work]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability, surface, particles, masks, calibration)
}


def planned(study: Study, names: Sequence[str]) -> tuple[list[Work], list[str]]:
    """The work of the analyses that the run has what it takes for, and a sentence about each of the others and about what is left out."""
    works, notes = [], []
    for name in names:
        try:
            works.append(ANALYSES[name](study))
        except ValueError as error:
            notes.append(str(error))
    if not works:
        raise ValueError("; ".join(notes))
    return works, list(dict.fromkeys([*notes, *(note for work in works for note in work.notes)]))


def analyse(study: Study, works: Sequence[Work]) -> dict[str, dict[str, Any]]:
    """Do the work; each result is written as soon as it is there."""
    annex, found = study.annex, {}
    with annex.locked():
        annex.clear_temporaries()
        annex.put_aside_damaged()
        study.watcher.begin(study.left(works), partial(study.seconds, works))
        for work in works:
            result, arrays = work.finish()
            result = {"analysis": work.name, "run": identity(study), **result}
            annex.write_result(work.name, result, arrays)
            found[work.name] = result
        annex.clear_work()
    return found


def identity(study: Study) -> dict[str, Any]:
    config = study.config
    return {"recipe": config.recipe, "method": config.method, "seed": config.seed}


def between_runs(directories: Sequence[Path], cycles: Sequence[int] | None = None) -> dict[str, Any]:
    """How alike the masks of several runs are, at each cycle that two of them have in common."""
    found = []
    rows = {path: {row.cycle: row for row in read_results(path)} for path in directories}
    for first, second in combinations(directories, 2):
        for cycle in sorted(rows[first].keys() & rows[second].keys()):
            if cycles is not None and cycle not in cycles:
                continue
            a, b = (Annex(path).load_mask(rows[path][cycle].mask) for path in (first, second))
            if a is not None and b is not None:
                pair = {"runs": [str(first), str(second)], **about(rows[first][cycle])}
                found.append({**pair, **msgspec.to_builtins(overlap(a, b))})
    if not found:
        raise ValueError("the runs have no cycle in common yet")
    return {"analysis": "overlap", "pairs": found}


# -- what a run has ---------------------------------------------------------------------------------------------------------------


def about(row: Result) -> dict[str, Any]:
    return {"cycle": row.cycle, "sparsity": row.sparsity}


def several(row: Result, least: int = 2) -> list[str]:
    return row.particles if len(row.particles) >= least else []


def kept(study: Study, what: str, keys: Callable[[Result], list[str]], keep: str) -> tuple[list[Result], list[str]]:
    """The rows whose weights are there, and a sentence about the others."""
    wanted = [row for row in study.rows if keys(row)]
    if not wanted:
        raise ValueError("no cycle that was asked for has enough particles: a plane takes three, a hull two")
    rows = [row for row in wanted if all(map(study.has, keys(row)))]
    lacking = [row for row in wanted if row not in rows]
    note = sentence(study, f"the {what}", lacking, keep) if lacking else ""
    if not rows:
        raise ValueError(note)
    return rows, [note] if note else []


def sentence(study: Study, what: str, rows: Sequence[Result], keep: str) -> str:
    """About weights that were not kept."""
    cycles = f"cycle{'s' if len(rows) > 1 else ''} {', '.join(str(row.cycle) for row in rows)}"
    return f"weights of {what} at {cycles} are not in {study.directory} (keep = {study.config.keep!r}; {keep!r} would have kept them)"
