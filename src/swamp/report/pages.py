"""Pages of documentation that follow from the code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

from swamp.methods import methods
from swamp.methods.method import Method
from swamp.runs.setting_list import SettingInfo, all_settings
from swamp.runs.settings import toml_text


def method_settings(method: Method) -> list[SettingInfo]:
    prefix = f"methods.{method.name}."
    return [setting for setting in all_settings() if setting.name.startswith(prefix)]


def method_page(method: Method) -> str:
    """A method as Markdown: what it does, its rule, where it departs from the original, its settings and its cost."""
    idea, _, rest = method.docstring.strip().partition("\n")
    blocks = [block(text) for text in rest.split("\n\n") if text.strip()]
    parts = [f"## {method.name}", f"{idea} {method.summary}", *blocks, method.notes]
    facts = [f"Paper: {method.paper}.", f"Cost, relative to a training of IMP: {method.cost}."]
    if not method.exact:
        facts.append("The sparsity that it reaches is reported; it is not exactly the one asked for.")
    parts.append(" ".join(facts))
    settings = method_settings(method)
    if settings:
        rows = [f"| `--{setting.name}` | `{toml_text(setting.default)}` | {setting.description} |" for setting in settings]
        parts.append("\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]))
    parts += [f"Preset `{preset.name}`: {preset.summary}" for preset in method.presets]
    return "\n\n".join(part for part in parts if part)


def block(text: str) -> str:
    """A part of a docstring: a rule in the paper's notation as it is, prose as prose."""
    is_rule = text.strip("\n").startswith(" ") or "←" in text
    return f"```text\n{dedent(text).strip()}\n```" if is_rule else " ".join(text.split())


def methods_page() -> str:
    return "\n\n".join(_pages()) + "\n"


def _pages() -> Iterator[str]:
    return (method_page(method) for method in methods().values())


MARK = "<!-- from here on made by: python -m swamp.report.pages docs/methods.md -->\n\n"

if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(file.read_text().partition(MARK)[0] + MARK + methods_page())
