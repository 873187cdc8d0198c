"""How far confidence is to be trusted."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from swamp.analyses.rows import Arrays, about, kept
from swamp.analyses.study import Study, Work
from swamp.landscape.calibration import reliability
from swamp.store.records import RowRecord
from swamp.training.numerics import applied, autocast

NO_CLASSES = "calibration is of classifiers, and this task gives no class probabilities"


def calibration(study: Study) -> Work:
    """Reliability curves on the test set."""
    if not getattr(study.task, "classifies", True):  # said before any work is done; other analyses go on
        raise ValueError(NO_CLASSES)
    rows, notes = kept(study, "solution", lambda row: [row.solution], "averages")

    def curve(row: RowRecord) -> dict[str, Any]:
        model = study.task.model().to(study.device)
        study.state(row.solution).into(model)
        with applied(study.config.numerics), autocast(study.config.numerics, study.device):
            found = study.task.predict(model, "test")
        if found is None:  # a task need not say beforehand that it is none
            raise ValueError(NO_CLASSES)
        return dict(msgspec.to_builtins(reliability(*found)))

    pieces = {row.cycle: study.piece("reliability", {"solution": row.solution}, partial(curve, row)) for row in rows}

    def finish() -> tuple[dict[str, Any], Arrays]:
        return {"rows": [{**about(row), "metrics": row.metrics, **study.get(pieces[row.cycle])} for row in rows]}, {}

    return Work("calibration", finish, list(pieces.values()), notes=notes)
