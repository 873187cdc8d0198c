"""The engine by which a process elsewhere trains the one job that it was given."""

from __future__ import annotations

from swamp.engines import graphed, sequential
from swamp.engines.engine import Engine, EngineContext


def build_local(context: EngineContext) -> Engine:
    if context.device.type == "cuda":
        return graphed.build(context, graphed.Config(particles=1))
    return sequential.build(context, sequential.Config())
