"""The house: a room imports only from rooms above it."""

from __future__ import annotations

import ast
from pathlib import Path

import swamp

ROOMS = [
    "version",
    "core",
    "drawing",
    "scores",
    "tasks",
    "training",
    "engines",
    "methods",
    "landscape",
    "export",
    "store",
    "runs",
    "results",
    "analyses",
    "trackers",
    "report",
    "recipes",
    "terminal",
    "progress_display",
    "api",
    "commands",
    "cli",
]
SOURCE = Path(swamp.__file__).parent


def imports(path: Path) -> set[str]:
    """The rooms that a file imports, wherever in it the imports stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            modules = [f"swamp.{alias.name}" for alias in node.names] if node.module == "swamp" else [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        found |= {module.split(".")[1] for module in modules if module.startswith("swamp.")}
    return found


def test_rooms_import_only_from_rooms_above() -> None:
    checked = 0
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):
            continue
        assert room in ROOMS, f"{path} stands in no known room"
        allowed = set(ROOMS[: ROOMS.index(room) + 1])
        assert imports(path) <= allowed, f"{path} imports {sorted(imports(path) - allowed)}"
        checked += 1
    assert checked > 30


def test_landscape_never_imports_methods() -> None:
    for path in (SOURCE / "landscape").rglob("*.py"):
        assert "methods" not in imports(path)


def test_no_room_for_leftovers() -> None:
    assert not [path for path in SOURCE.rglob("*.py") if path.stem in ("utils", "common", "helpers", "misc")]


def test_no_test_module_imports_another() -> None:
    """What test modules share lives in tests/support or is a fixture of a conftest.py."""
    tests = Path(__file__).parent
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            for module in modules:
                last = [name for name in module.split(".") if name.startswith("test_") or name == "conftest"]
                assert not (module.startswith("tests.") and last), f"{path.relative_to(tests)} imports {module}"
