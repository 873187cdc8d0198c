"""Goes on with the half-finished runs of the zoo in a process of its own: python -m tests.support.own_models.resume FOLDER

FOLDER holds a run directory for each case. How many epochs were trained in each, or the error, is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.support.listeners import Watcher
from tests.support.own_models import CASES


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)  # A module that a script makes has other weights than in the process before.
    warnings.simplefilter("error")
    answers: dict[str, Any] = {}
    for case in CASES:
        if (folder / case.name).is_dir():
            try:
                watcher = Watcher()
                case.prune(folder / case.name, watcher)
                answers[case.name] = {"epochs": watcher.trained}
            except Exception as error:
                answers[case.name] = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
