"""Writes the map of modules, docs/architecture/modules.md: each package and module with the first sentence of its docstring. The packages
alone are listed in docs/architecture.md too.

Run it after a module was added, renamed or described anew: python docs/module_map.py. The order of the packages in the map is the order of
the layers, written by hand; a package that the map lacks is put last.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "swamp"
PAGE = ROOT / "docs" / "architecture" / "modules.md"
OVERVIEW = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(?<=<!-- module map -->\n```text\n).*?(?=\n```)", re.DOTALL)
PACKAGES = re.compile(r"(?<=<!-- packages -->\n```text\n).*?(?=```)", re.DOTALL)


def layers(page: str) -> list[str]:
    """Return the packages and single modules of the map, in the order of the layers.

    >>> layers("<!-- module map -->\\n```text\\ncore/     Values.\\n  job.py  Jobs.\\napi.py  The API.\\n```\\n")
    ['core', 'api']
    """
    (block,) = BLOCK.findall(page)
    return [re.split(r"[/ .]", line)[0] for line in block.splitlines() if not line.startswith(" ")]


def first_sentence(module: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(module.read_text())) or "").split("\n\n")[0].split())
    return re.split(r"(?<!\bal\.)(?<=\.)\s", text)[0]


def module_map(order: list[str]) -> str:
    names = {
        path.stem if path.suffix else path.name for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    lines = []
    for name in sorted(names - {"__init__", "__main__"}, key=lambda name: (order.index(name) if name in order else len(order), name)):
        package = SOURCE / name
        if not package.is_dir():
            lines.append((f"{name}.py", first_sentence(package.with_suffix(".py"))))
            continue
        for module in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.name)):
            depth = "  " * len(module.relative_to(package).parts[:-1])
            if module.name == "__init__.py":
                lines.append((f"{depth}{module.parent.name}/", first_sentence(module)))
            else:
                lines.append((f"{depth}  {module.name}", first_sentence(module)))
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(f"{name:{width}}{sentence}".rstrip() for name, sentence in lines)


def packages(order: list[str]) -> str:
    """Return the lines of the map that are packages."""
    lines = [line.split(maxsplit=1) for line in module_map(order).splitlines() if not line.startswith(" ")]
    found = [(name, sentence) for name, sentence in lines if name.endswith("/")]
    width = max(len(name) for name, _ in found) + 2
    return "".join(f"{name:{width}}{sentence}\n" for name, sentence in found)


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(BLOCK.sub(lambda _: module_map(layers(page)), page))
    OVERVIEW.write_text(PACKAGES.sub(lambda _: packages(layers(page)), OVERVIEW.read_text()))
