"""swamp: finding highly sparse neural networks.

import swamp

for row in swamp.rows("digits", method="swamp", out="runs/mine"):
    print(row.sparsity, row.metrics["accuracy"])
model, mask, row = swamp.load("runs/mine", cycle=5)
"""

# `python -m swamp` imports this file while the current directory is still the first place where Python looks for modules. Nothing but
# what Python itself has loaded by then is imported here.
import importlib

from swamp.version import __version__

TYPE_CHECKING = False  # Type checkers know the name, and read what follows.
if TYPE_CHECKING:
    from typing import Any

    from swamp import core, export, landscape, runtime, scores, tasks
    from swamp.api import Run, prune, rows, run
    from swamp.core.job import Job, Optimizer, Solution
    from swamp.core.mask import Mask
    from swamp.core.noise import Noise
    from swamp.core.pruning import Pruning
    from swamp.core.schedules import SWA, Schedule
    from swamp.core.state import State
    from swamp.export.compiled import compile_sparse
    from swamp.export.formats.sparse import load_sparse
    from swamp.loading import Loaded, load
    from swamp.loops import prune_with
    from swamp.pruned import Chosen, Pruned, PrunedSeeds
    from swamp.runs.config import Config, build_config
    from swamp.runs.progress import Listener
    from swamp.store.records import RowRecord
    from swamp.tasks.custom import CustomTask
    from swamp.training.masking import masked
    from swamp.training.own_loop import LoopTraining

_MODULES = {
    "swamp.api": ("Run", "prune", "rows", "run"),
    "swamp.core.job": ("Job", "Optimizer", "Solution"),
    "swamp.core.mask": ("Mask",),
    "swamp.core.noise": ("Noise",),
    "swamp.core.pruning": ("Pruning",),
    "swamp.core.schedules": ("SWA", "Schedule"),
    "swamp.core.state": ("State",),
    "swamp.export.compiled": ("compile_sparse",),
    "swamp.export.formats.sparse": ("load_sparse",),
    "swamp.loading": ("Loaded", "load"),
    "swamp.loops": ("prune_with",),
    "swamp.pruned": ("Chosen", "Pruned", "PrunedSeeds"),
    "swamp.runs.config": ("Config", "build_config"),
    "swamp.runs.progress": ("Listener",),
    "swamp.store.records": ("RowRecord",),
    "swamp.tasks.custom": ("CustomTask",),
    "swamp.training.masking": ("masked",),
    "swamp.training.own_loop": ("LoopTraining",),
}

_PACKAGES = ("core", "export", "landscape", "runtime", "scores", "tasks")

__all__ = [
    "SWA",
    "Chosen",
    "Config",
    "CustomTask",
    "Job",
    "Listener",
    "Loaded",
    "LoopTraining",
    "Mask",
    "Noise",
    "Optimizer",
    "Pruned",
    "PrunedSeeds",
    "Pruning",
    "RowRecord",
    "Run",
    "Schedule",
    "Solution",
    "State",
    "__version__",
    "build_config",
    "compile_sparse",
    "core",
    "export",
    "landscape",
    "load",
    "load_sparse",
    "masked",
    "prune",
    "prune_with",
    "rows",
    "run",
    "runtime",
    "scores",
    "tasks",
]


def __getattr__(name: str) -> "Any":
    # Names are imported on first use, so that `swamp --help` does not wait for torch.
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name in _PACKAGES:
        return importlib.import_module(f"swamp.{name}")
    raise AttributeError(f"module 'swamp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
