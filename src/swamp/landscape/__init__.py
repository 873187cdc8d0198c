"""Curvature, connectivity, surfaces, similarity and calibration of solutions, as pure functions of a task and its solutions.

Each module opens with its formulas. `swamp analyse DIR` applies these functions to a run directory.
"""

from swamp.landscape.calibration import Reliability, reliability
from swamp.landscape.connectivity import Barrier, barrier, between, dirichlet, hull_excess
from swamp.landscape.geometry import Overlap, Plane, distance, distances, overlap
from swamp.landscape.hessian import Hessian, Spectrum, TraceEstimate, lanczos, probe_traces, spectral_density, trace_of
from swamp.landscape.point import EvaluationSetup, PointEvaluator, combined, measured, subset

__all__ = [
    "Barrier",
    "EvaluationSetup",
    "Hessian",
    "Overlap",
    "Plane",
    "PointEvaluator",
    "Reliability",
    "Spectrum",
    "TraceEstimate",
    "barrier",
    "between",
    "combined",
    "dirichlet",
    "distance",
    "distances",
    "hull_excess",
    "lanczos",
    "measured",
    "overlap",
    "probe_traces",
    "reliability",
    "spectral_density",
    "subset",
    "trace_of",
]
