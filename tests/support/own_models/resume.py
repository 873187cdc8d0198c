"""Goes on with the half-finished runs of the zoo in a process of its own: python -m tests.support.own_models.resume FOLDER

FOLDER holds a run directory for each case. How many epochs were trained in each, or the error, is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from swamp import api
from swamp.runs.progress import Listener
from swamp.runs.runner import run_rows
from swamp.store.records import RowRecord
from tests.support.listeners import Both, Watcher
from tests.support.own_models import CASES


@contextmanager
def watched(after_row: Callable[[RowRecord], None]) -> Iterator[Watcher]:
    """Watch what `swamp.prune` trains, and call a function when a row is finished and on disk."""
    watcher = Watcher()

    def watched_rows(prepared: Any, listener: Listener | None = None) -> Iterator[RowRecord]:
        for row in run_rows(prepared, Both(listener or Listener(), watcher)):
            after_row(row)
            yield row

    with mock.patch.object(api, "run_rows", watched_rows):
        yield watcher


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)  # A module that a script makes has other weights than in the process before.
    warnings.simplefilter("error")
    answers: dict[str, Any] = {}
    for case in CASES:
        if (folder / case.name).is_dir():
            try:
                with watched(lambda row: None) as watcher:
                    case.prune(folder / case.name)
                answers[case.name] = {"epochs": watcher.trained}
            except Exception as error:
                answers[case.name] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
