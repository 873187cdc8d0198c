"""The runtime for sparse files, which is a package of its own that needs no torch: `swamp_runtime`."""

from swamp_runtime import LibraryUnavailable, Malformed, Model, Port, instructions, load, load_bytes

__all__ = ["LibraryUnavailable", "Malformed", "Model", "Port", "instructions", "load", "load_bytes"]
