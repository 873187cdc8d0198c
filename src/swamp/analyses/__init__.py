"""The analyses of a run: which points, probes and trainings each is made of, and how its result follows from them.

An analysis is a function from a study to its work; it raises `ValueError` with a sentence where the run lacks what it needs. Their names
are the options of `swamp analyse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from swamp.analyses.calibration import calibration
from swamp.analyses.curvature import hessian
from swamp.analyses.masks import between_runs, masks
from swamp.analyses.particles import particles
from swamp.analyses.paths import connectivity, hull, stability
from swamp.analyses.study import Study, Work
from swamp.analyses.surface import surface
from swamp.methods.method import Keep

__all__ = ["ANALYSES", "NEEDS", "analyse", "between_runs", "planned"]


ANALYSES: dict[str, Callable[[Study], Work]] = {
    function.__name__: function for function in (hessian, connectivity, hull, stability, surface, particles, masks, calibration)
}

# the least `keep` of a run that has what an analysis of all its cycles takes; those that are not named take no weights, or any two
NEEDS: dict[str, Keep] = {"hessian": "averages", "calibration": "averages", "hull": "all", "surface": "all"}


def planned(study: Study, names: Sequence[str]) -> tuple[list[Work], list[str]]:
    """The work of the analyses that the run has what it takes for, and a sentence about each of the others and about what is left out."""
    if study.analysis_store.root.exists():  # what is stored is read to see what is left to do
        with study.analysis_store.locked():
            study.analysis_store.put_aside_damaged()
    works, notes = [], []
    for name in names:
        try:
            works.append(ANALYSES[name](study))
        except ValueError as error:
            notes.append(str(error))
    if not works:
        raise ValueError("; ".join(dict.fromkeys(notes)))
    return works, list(dict.fromkeys([*notes, *(note for work in works for note in work.notes)]))


def analyse(study: Study, works: Sequence[Work]) -> dict[str, dict[str, Any]]:
    """Do the work; each result is written as soon as it is there."""
    analysis_store, found = study.analysis_store, {}
    with analysis_store.locked():
        analysis_store.clear_temporaries()
        study.watcher.begin(study.left(works), partial(study.seconds, works))
        for work in works:
            result, arrays = work.finish()
            result = {"analysis": work.name, "run": identity(study), **result}
            analysis_store.write_result(work.name, result, arrays)
            found[work.name] = result
        analysis_store.clear_work()
    return found


def identity(study: Study) -> dict[str, Any]:
    config = study.config
    return {"recipe": config.recipe, "method": config.method, "seed": config.seed}
