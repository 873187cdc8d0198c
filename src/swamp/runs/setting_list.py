"""All settings there are, and a configuration as text: on the command line and in TOML."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from swamp.core.errors import closest
from swamp.engines import engine_modules
from swamp.runs.config import SHORTHANDS, Config, selectable
from swamp.runs.other_names import OTHER_KEYWORDS, OTHER_NAMES, in_python
from swamp.runs.recipes import SELECTORS, TomlTable, nested
from swamp.runs.settings import bare, description, fields_of, flat, parse_value, toml_text


class SettingInfo(NamedTuple):
    """A setting as a list of settings shows it."""

    name: str  # dotted
    kind: Any
    default: Any
    description: str


def all_settings(kind: Any = Config, prefix: str = "") -> Iterator[SettingInfo]:
    """Yield every setting there is, those of all tasks, methods and engines included."""
    for field in fields_of(kind):
        name = f"{prefix}{field.name}"
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if field.name in SELECTORS.values() and kind is Config:
            for key, module in selectable()[field.name].items():
                yield from all_settings(module.Config, f"{name}.{key}.")
        elif isinstance(field.type, type) and issubclass(field.type, Struct):
            for inner in all_settings(field.type, f"{name}."):
                yield inner._replace(default=getattr(default, inner.name.rpartition(".")[2]))
        else:
            yield SettingInfo(name, field.type, default, description(field.type))


def parse_setting(name: str, text: str, options: Sequence[str] = ()) -> tuple[str, Any]:
    """Return the full name and the value of a setting on the command line. The type of the setting decides how the text is read.

    An unknown name may also be meant as one of the command's `options`, which are named without their dashes."""
    if name == "recipe":
        raise ValueError(f"a recipe is named without --recipe: swamp run {text}".rstrip())
    settings = {setting.name: setting for setting in all_settings()}
    short = {key: f"engines.{engine}.{field}" for engine, module in engine_modules().items() for key, field in module.short_names.items()}
    for candidate in (short.get(name, name), name.replace("-", "_")):
        if candidate in settings:
            try:
                return candidate, parse_value(bare(settings[candidate].kind), text)
            except ValueError as error:
                raise ValueError(f"--{name} {error}") from None
    meant = _meant(name.replace("-", "_"), settings)
    if meant == ["pruning.sparsity"] and "sparsity" in options:
        meant = ["sparsity"]
    if not meant and (close := closest(name, [*settings, *options])):
        meant = [close]
    guess = f"; did you mean {' or '.join(f'--{one}' for one in meant)}?" if meant else ""
    raise ValueError(f"unknown setting --{name}{guess} (all of them: swamp recipes digits)")


def _meant(name: str, settings: Iterable[str]) -> list[str]:
    """Return the settings that an unknown name may stand for: other libraries call one so, or the user left out its table."""
    return [OTHER_NAMES[name]] if name in OTHER_NAMES else [setting for setting in settings if setting.endswith(f".{name}")]


def require_known_names(given: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Check the names of settings that a function was given as keywords, beside those that it has itself."""
    keywords = [key for key, one in inspect.signature(function).parameters.items() if one.kind is one.KEYWORD_ONLY]
    known = [*(field.name for field in structs.fields(Config)), *SHORTHANDS]
    for name in nested(given):
        if name in known:
            continue
        other = OTHER_KEYWORDS.get(name)
        meant = [f"{other}=…"] if other in keywords else list(map(in_python, _meant(name, (setting.name for setting in all_settings()))))
        if not meant and (close := closest(name, [*keywords, *known])):
            meant = [f"{close}=…"]
        guess = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise ValueError(f"unknown setting {name!r}{guess} (all of them: swamp recipes digits)")


def to_toml(config: Config, recipe: TomlTable | None = None) -> str:
    """Return the configuration as a complete recipe, each setting with its description.

    With the `recipe` that it comes from, the tables of all that could be selected are added, as that recipe or else the default has them.
    """
    everything = recipe is not None
    settings = {setting.name: setting for setting in all_settings()}
    given = dict(flat(recipe or {}, known=settings)) | dict(flat(msgspec.to_builtins(config), known=settings))
    lines, table = [], ""
    for setting in settings.values():
        if setting.name not in given and not everything:
            continue
        value = given.get(setting.name, setting.default)
        head, _, name = setting.name.rpartition(".")
        if head != table:
            lines += ["", f"[{head}]"]
            table = head
        lines.append(f"{name} = {toml_text(value)}  # {setting.description}")
    return "\n".join(lines).lstrip() + "\n"
