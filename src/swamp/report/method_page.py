"""The page about a method: `swamp methods NAME` prints it, and docs/methods.md has those of all methods."""

from __future__ import annotations

from textwrap import dedent

from swamp.methods.method import Method
from swamp.runs.setting_list import SettingInfo, all_settings
from swamp.runs.settings import toml_text


def method_settings(method: Method) -> list[SettingInfo]:
    prefix = f"methods.{method.name}."
    return [setting for setting in all_settings() if setting.name.startswith(prefix)]


def method_page(method: Method) -> str:
    """Describe a method in Markdown: what it does, its rule, where it departs from the original, its settings and its cost."""
    idea, _, rest = method.docstring.strip().partition("\n")
    blocks = [block(text) for text in rest.split("\n\n") if text.strip()]
    parts = [f"## {method.name}", f"{idea} {method.summary}", *blocks, method.notes]
    facts = [f"Paper: {method.paper}.", f"Cost, beside 1 for a cycle of IMP: {method.cost}."]
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
    """Return a part of a docstring as Markdown: a rule in the paper's notation as it is, prose as a paragraph."""
    is_rule = text.strip("\n").startswith(" ") or "←" in text
    return f"```text\n{dedent(text).strip()}\n```" if is_rule else " ".join(text.split())
