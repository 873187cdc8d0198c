"""Engines train jobs. They differ in speed and in where they train, never in what they compute.

`engine.py` documents the contract. An engine is one module of this package, or one that another distribution registers as an entry point
in the group "swamp.engines".
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache

from swamp.core.discovery import modules_with
from swamp.core.errors import nearest
from swamp.engines.engine import Engine, EngineContext, EngineModule
from swamp.engines.launch.ranks import Rank

FALLBACK = "sequential"  # trains any task on any device


@cache
def engine_modules() -> dict[str, EngineModule]:
    """Return all engines by name."""
    return {name: EngineModule.of(module) for name, module in modules_with(sys.modules[__name__], "build").items()}


def find_engine(name: str) -> EngineModule:
    """Return the engine with this name."""
    if name not in engine_modules():
        raise ValueError(f"unknown engine {name!r}; {nearest(name, engine_modules())}")
    return engine_modules()[name]


def default_engine(device_type: str) -> str:
    """Return the name of the engine that engine = "auto" selects on this type of device."""
    return next((name for name, module in engine_modules().items() if device_type in module.default_for), FALLBACK)


def check_launch(engines: Iterable[EngineModule]) -> None:
    """Refuse a launch of several processes by torchrun if one of these engines cannot share a run among them."""
    rank = Rank.of_process()
    if rank is not None and rank.size > 1 and not all(module.knows_launches for module in engines):
        able = " or ".join(name for name, module in engine_modules().items() if module.knows_launches)
        raise ValueError(f"torchrun started {rank.size} processes, and only --engine {able} knows how to share a run among them")


def build_local(context: EngineContext) -> Engine:
    """Return the engine by which a process of a cluster trains the single jobs that it is given."""
    from swamp.engines import graphed, sequential

    if context.device.type == "cuda" and not any(map(graphed.why_not, context.tasks.values())):
        return graphed.build(context, graphed.Config(particles=1))
    return sequential.build(context, sequential.Config())
