"""The engine by which a process elsewhere trains the one job that it was given."""

from __future__ import annotations

from swamp.engines import graphed, sequential
from swamp.engines.engine import Engine, Workshop


def build_local(workshop: Workshop) -> Engine:
    if workshop.device.type == "cuda":
        return graphed.build(workshop, graphed.Config(particles=1))
    return sequential.build(workshop, sequential.Config())
