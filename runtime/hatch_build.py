"""Puts the compiled library into the wheel, if there is a compiler where the wheel is built.

A wheel without it holds the same source, which is compiled on the machine where it is first used.
"""

from __future__ import annotations

import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).parent / "src" / "swamp_runtime"


class LibraryBuildHook(BuildHookInterface[Any]):
    """Compiles the library for all instruction sets of the processor's kind."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        library = runpy.run_path(str(PACKAGE / "library.py"))
        self.folder = tempfile.TemporaryDirectory()
        made = Path(self.folder.name) / library["PREBUILT"].name
        try:
            library["build"](library["compiler"](), made, self.portable())
        except library["LibraryUnavailable"] as error:
            self.app.display_warning(f"the wheel holds no compiled library: {error}")
            return
        build_data["force_include"][str(made)] = f"swamp_runtime/{made.name}"
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")

    def portable(self) -> tuple[str, ...]:
        """Return options for a library that needs no C++ library where it is used."""
        return ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL") if sys.platform == "linux" else ()
