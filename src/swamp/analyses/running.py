"""Plans and runs analyses of a study, and draws what they found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swamp.analyses.analysis import Analysis, BetweenRuns, Result, SeriesResults, read_stored
from swamp.analyses.study import Study, Work, settings_of
from swamp.drawing.canvas import encoded, pyplot
from swamp.store.analysis_store import AnalysisStore

DPI = 130


def plan_analyses(study: Study, kinds: Iterable[Analysis]) -> tuple[dict[str, Work], list[str]]:
    """Return the work of the kinds that the run has what it takes for, by name, and a sentence about all that is left out."""
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
        study.listener.begin(study.left(works), partial(study.seconds, works), at_most)
        for name, work in works.items():
            found[name], arrays = work.finish()
            store.write_result(name, found[name], arrays)
        store.clear_work()
    return found


def draw(kind: Analysis | BetweenRuns, store: AnalysisStore) -> list[Path]:
    """Draw the figure of a stored result beside it. There is none where matplotlib is not installed: the result is what counts."""
    found = read_stored(store.run, kind)
    plt = _pyplot()
    return _write(plt, store, kind.name, kind.figure(plt, found)) if plt and found else []


def draw_spread(kind: Analysis, store: AnalysisStore, found: Sequence[SeriesResults]) -> list[Path]:
    """Draw the figure of several runs' results, NAME-runs, if the kind has one and there are two results."""
    plt = _pyplot()
    draw_several = getattr(kind, "spread_figure", None)
    if not plt or not draw_several or sum(len(series.results) for series in found) < 2:
        return []
    return _write(plt, store, f"{kind.name}-runs", draw_several(plt, found))


def _pyplot() -> Any:
    try:
        return pyplot()
    except ValueError:
        return None


def _write(plt: Any, store: AnalysisStore, name: str, figure: Any) -> list[Path]:
    try:
        for suffix in (".png", ".svg"):
            store.write_bytes(f"{name}{suffix}", encoded(figure, suffix, DPI))
    finally:
        plt.close(figure)
    return [store.root / f"{name}{suffix}" for suffix in (".png", ".svg")]
