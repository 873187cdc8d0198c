"""Why a method works: curvature, connectivity, surfaces, masks and calibration, as pure functions of a task and its solutions.

Each module opens with its formulas. `swamp analyse DIR` calls them on a run directory; they know of no directory themselves.
"""

from swamp.landscape.calibration import Reliability, reliability
from swamp.landscape.connectivity import Barrier, barrier, between, dirichlet, hull_excess
from swamp.landscape.hessian import Hessian, Spectrum, Trace, lanczos, probe_traces, spectral_density, trace_of
from swamp.landscape.masks import Overlap, overlap
from swamp.landscape.particles import distance, distances
from swamp.landscape.point import Gauge, Setting, combined, measured, subset
from swamp.landscape.surface import Plane

__all__ = [
    "Barrier",
    "Gauge",
    "Hessian",
    "Overlap",
    "Plane",
    "Reliability",
    "Setting",
    "Spectrum",
    "Trace",
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
