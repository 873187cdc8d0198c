"""The Hessian's trace, spectrum and largest eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from swamp.analyses.rows import Arrays, about, kept
from swamp.analyses.study import PRODUCT, CachedStep, Study, Work
from swamp.landscape.hessian import Spectrum, TraceEstimate, lanczos, probe_traces, spectral_density, trace_of
from swamp.store.records import RowRecord

CHUNK = 10  # probes that are stored together
NUM_TOP = 5  # eigenvalues shown


def hessian(study: Study) -> Work:
    """Trace with its standard error, largest eigenvalues, density of the spectrum."""
    settings = study.settings
    rows, notes = kept(study, "solution", lambda row: [row.solution], "averages")
    probes = {row.cycle: [_probes(study, row, first) for first in range(0, settings.max_probes, CHUNK)] for row in rows}
    spectra = {row.cycle: [_spectrum(study, row, start) for start in range(settings.starts)] for row in rows}

    open_ones = {row.cycle for row in rows if not _settled(study, probes[row.cycle])}

    def trace(row: RowRecord) -> TraceEstimate:
        found = trace_of(map(study.get, probes[row.cycle]), settings.tolerance)
        if row.cycle in open_ones:
            study.spare(probes[row.cycle])
        return found

    def finish() -> tuple[dict[str, Any], Arrays]:
        found: list[dict[str, Any]] = []
        arrays: Arrays = {}
        traces = {row.cycle: trace(row) for row in rows}
        all_starts = {row.cycle: [msgspec.convert(study.get(piece), Spectrum) for piece in spectra[row.cycle]] for row in rows}
        nodes = [node for starts in all_starts.values() for spectrum in starts for node in spectrum.nodes]
        room = 0.05 * (max(nodes) - min(nodes))
        # one range and one width for all, so that densities can be compared
        at = torch.linspace(min(nodes) - room, max(nodes) + room, 2001, dtype=torch.float64)
        for row in rows:
            starts = all_starts[row.cycle]
            best = max(starts, key=lambda spectrum: spectrum.nodes[-1])
            low = min(spectrum.nodes[0] for spectrum in starts)
            density = spectral_density(starts, at, room / 10)
            arrays |= {f"cycle-{row.cycle}.eigenvalue": at, f"cycle-{row.cycle}.density": density}
            found.append(
                {
                    **about(row),
                    "trace": msgspec.to_builtins(traces[row.cycle]),
                    "top_eigenvalues": best.nodes[: -NUM_TOP - 1 : -1],
                    "top_residuals": best.residuals[: -NUM_TOP - 1 : -1],
                    "least_eigenvalue": low,
                    "spectra": msgspec.to_builtins(starts),
                }
            )
        about_all = {
            "examples": study.num_hessian_examples,
            "split": settings.split,
            "tolerance": settings.tolerance,
            "max_probes": settings.max_probes,
        }
        return {**about_all, "rows": found}, arrays

    needed = (probes[cycle] for cycle in probes if cycle in open_ones)
    pieces = [piece for group in (*needed, *spectra.values()) for piece in group]
    return Work("hessian", finish, pieces, notes=notes)


def _settled(study: Study, probes: Sequence[CachedStep]) -> bool:
    """Whether the probes that are stored are enough."""
    stored: list[list[float]] = []
    for piece in probes:
        values = study.analysis_store.read_value(piece.key)
        if values is None:
            break
        stored.append(values)
    return bool(stored) and trace_of(stored, study.settings.tolerance).converged


def _probes(study: Study, row: RowRecord, first: int) -> CachedStep:
    count = min(CHUNK, study.settings.max_probes - first)

    def make() -> list[float]:
        operator = study.hessian(row.solution, row.mask)
        return probe_traces(operator, operator.size, study.setting.noise, first, count)

    return study.piece("trace", {**_of(study, row), "first": first, "count": count}, make, PRODUCT, count)


def _spectrum(study: Study, row: RowRecord, start: int) -> CachedStep:
    steps = study.settings.steps

    def make() -> Any:
        operator = study.hessian(row.solution, row.mask)
        return msgspec.to_builtins(lanczos(operator, operator.size, study.setting.noise.fold("start", start), steps))

    return study.piece("spectrum", {**_of(study, row), "start": start, "steps": steps}, make, PRODUCT, steps)


def _of(study: Study, row: RowRecord) -> dict[str, Any]:
    """What identifies the Hessian that a piece belongs to: its network and its examples."""
    return {"solution": row.solution, "mask": row.mask, "split": study.settings.split, "examples": study.num_hessian_examples}
