"""Packages import only from packages above them in docs/architecture/modules.md, whose map is complete. One class name has one meaning."""

from __future__ import annotations

import ast
import runpy
from collections import defaultdict
from pathlib import Path

import swamp

ROOT = Path(__file__).parent.parent
MAP = runpy.run_path(str(ROOT / "docs" / "module_map.py"))
PAGE = (ROOT / "docs" / "architecture" / "modules.md").read_text()
LAYERS = MAP["layers"](PAGE)
SOURCE = Path(swamp.__file__).parent
# Each engine, method, task and analysis defines these names for itself: they are the contract of their packages.
CONTRACT_NAMES = {"Config", "Settings", "Result", "Row"}


def imports(path: Path) -> set[str]:
    """Return the packages and top-level modules of swamp that a file imports, also inside of functions."""
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


def declared_names(path: Path) -> set[str]:
    """Return the names of a module's own top-level classes and type aliases, but not those of type variables and constants."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            is_variable = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) == "TypeVar"
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            found |= {name for name in names if not is_variable and name[0].isupper() and not name.isupper()}
    return found


def test_layers_import_only_from_layers_before_them() -> None:
    checked = 0
    for path in SOURCE.rglob("*.py"):
        layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if layer in ("__init__", "__main__"):
            continue
        assert layer in LAYERS, f"{path} belongs to no known layer"
        allowed = set(LAYERS[: LAYERS.index(layer) + 1])
        assert imports(path) <= allowed, f"{path} imports {sorted(imports(path) - allowed)}"
        checked += 1
    assert checked > 30


def test_the_map_of_modules_is_complete_and_says_what_docstrings_say() -> None:
    (written,) = MAP["BLOCK"].findall(PAGE)
    assert written == MAP["module_map"](LAYERS), "write the map anew: python docs/module_map.py"
    for line in written.splitlines():
        assert len(line.split()) > 2, f"a module without a docstring: {line}"
    assert MAP["PACKAGES"].findall(MAP["OVERVIEW"].read_text()) == [MAP["packages"](LAYERS)], "write the list of packages anew likewise"


def test_landscape_never_imports_methods() -> None:
    for path in (SOURCE / "landscape").rglob("*.py"):
        assert "methods" not in imports(path)


def test_no_module_has_a_name_without_meaning() -> None:
    assert not [path for path in SOURCE.rglob("*.py") if path.stem in ("utils", "common", "helpers", "misc")]


def test_a_class_name_is_defined_in_one_module() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in declared_names(path):
            homes[name].append(str(path.relative_to(SOURCE)))
    assert len(homes) > 100
    repeated = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not {name: paths for name, paths in repeated.items() if name not in CONTRACT_NAMES}


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
