"""Settings as text and as typed values: strict conversion with helpful errors, and TOML."""

from __future__ import annotations

import functools
import math
import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, structs

from swamp.core.errors import brief, nearest
from swamp.runs.other_names import OTHER_NAMES

fields_of = functools.cache(structs.fields)  # msgspec reads the annotations anew at each call.


def convert(value: Any, kind: Any, prefix: str = "") -> Any:
    """Convert a plain value to the type `kind`. This is strict: 3.7 is no integer and 3 no text.

    Errors name the setting, its value and what is allowed.
    """
    for path, found in flat(value, prefix):
        if isinstance(found, float) and not math.isfinite(found):
            raise ValueError(f"{path} = {found} is not a finite number")
        if isinstance(found, str) and not found.isprintable() and any(0xD800 <= ord(one) < 0xE000 for one in found):
            raise ValueError(f"{path} = {found!r} is no valid UTF-8")
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ValueError(_explain(str(error), value, kind, prefix)) from None


def plain(value: Any) -> Any:
    """Return settings with numbers of NumPy as those of Python.

    >>> plain({"seed": np.arange(3)[2], "cycle": {"epochs": np.int64(3)}, "pruning.sparsity": np.float32(0.7)})
    {'seed': 2, 'cycle': {'epochs': 3}, 'pruning.sparsity': 0.7}
    """
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.floating):
        return float(str(value))  # The nearest double of float32's 0.7 has more digits.
    return value.item() if isinstance(value, np.generic) else value


def flat(value: Any, name: str = "", known: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the settings in nested tables by dotted name. A table that is the value of a `known` setting is yielded as a whole."""
    if isinstance(value, Mapping) and name not in known:
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key), known)
    else:
        yield name, value


def _choices(kind: Any) -> list[str]:
    """Return the values that a field lists, also where it may be a table too.

    >>> _choices(typing.Literal["a", "b"] | dict[str, typing.Literal["a", "b"]])
    ['a', 'b']
    """
    inside = typing.get_args(bare(kind))
    if typing.get_origin(bare(kind)) is typing.Literal:
        return [str(choice) for choice in inside]
    return [choice for one in inside if typing.get_origin(one) is typing.Literal for choice in _choices(one)]


def _explain(message: str, value: Any, kind: Any, prefix: str) -> str:
    """Return msgspec's message about a wrong value as a sentence about a setting."""
    what, _, at = message.partition(" - at ")
    # msgspec says `$.cycle.epochs`, `$.particles[...]` or `key` in `$.particles`. The last two are named by their setting.
    inner = [part for part in re.sub(r"\[.*", "", at.rpartition("$")[2].strip("`")).split(".") if part]
    path = ".".join([*([prefix] if prefix else []), *inner])
    found: Any = value
    for part in inner:
        found = found.get(part) if isinstance(found, Mapping) else None
    if match := re.search(r"unknown field `(.+)`", what):
        name = match.group(1)
        full = f"{path}.{name}".lstrip(".")
        here = [field.name for field in fields_of(_struct_at(kind, inner))]
        meant = OTHER_NAMES.get(name, "")
        inside = meant.rpartition(".")[2]
        return f"unknown setting {full!r}; {nearest(name, here, inside if inside in here else meant or None)}"
    if "Invalid enum value" in what:
        return f"{path} = {brief(found)} is not allowed; {nearest(str(found), _choices(_field_type(kind, inner)))}"
    if not path or what.startswith(f"{path}."):  # A check of several settings names the one that is wrong.
        return what
    plain = re.sub(r"Expected `([a-z| ]+)`", lambda types: f"expected {_in_words(types[1].split(' | '))}", what).replace("`", "")
    if isinstance(found, str):
        plain = plain.removesuffix(", got str")  # Every value on the command line is a text.
    if "matching regex" in plain and (doc := description(_field_type(kind, inner))):
        plain = doc
    return f"{path} = {brief(found)}: {plain}" if found is not None else f"{path}: {plain}"


def _in_words(types: Sequence[str]) -> str:
    """Name msgspec's types of a setting as a user writes them.

    >>> _in_words(["int", "object"]), _in_words(["int", "float"])
    ('an integer, or a table such as 0:1,10:4', 'a number')
    """
    words = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "a text", "object": "a table", "array": "a list"}
    kinds = [kind for kind in types if not (kind == "int" and "float" in types)]
    example = {"int": " such as 0:1,10:4", "bool": " such as 0:false,10:true"}.get(kinds[0], "") if "object" in kinds[1:] else ""
    return ", or ".join(words.get(kind, kind) for kind in kinds) + example


def _struct_at(kind: Any, path: list[str]) -> Any:
    for part in path:
        kind = bare(next(field.type for field in fields_of(kind) if field.name == part))
    return kind


def _field_type(kind: Any, path: list[str]) -> Any:
    return next((field.type for field in fields_of(_struct_at(kind, path[:-1])) if field.name == path[-1]), Any)


def bare(kind: Any) -> Any:
    """Return a type without its annotations."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def description(kind: Any) -> str:
    """Return the description that annotates a type, if there is one."""
    metas = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    return next((meta.description for meta in metas if isinstance(meta, Meta) and meta.description), "")


def parse_value(kind: Any, text: str) -> Any:
    """Return the plain value that a text on the command line stands for in a setting of type `kind`.

    >>> parse_value(int | dict[str, int], "0:1,10:4")
    {'0': 1, '10': 4}
    >>> parse_value(tuple[str, ...], "conv,linear")
    ['conv', 'linear']
    """
    if kind is str or typing.get_origin(kind) is Literal:
        return text
    if typing.get_origin(kind) is tuple and not text.startswith("["):
        inner = bare(typing.get_args(kind)[0])
        return [parse_value(inner, part.strip()) for part in text.split(",") if part.strip()]
    if re.fullmatch(r"\d+:[^:,]+(,\d+:[^:,]+)*", text):
        pairs = [pair.split(":") for pair in text.split(",")]
        firsts = [first for first, _ in pairs]
        if twice := next((first for first in firsts if firsts.count(first) > 1), None):
            raise ValueError(f"{brief(text)[1:-1]} gives {twice} twice")
        return {first: _toml_value(value) for first, value in pairs}
    return _toml_value(text)


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also where it has thousands of digits or brackets
        return text  # The type check explains what is wrong.


def text_of(value: object) -> str:
    """Return a value as the command line takes it: texts without quotes, and lists of texts with commas between them."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return toml_text(value)


def toml_text(value: Any) -> str:
    """Return a value as TOML writes it.

    >>> toml_text({"0": 1, "11": 4})
    '{"0" = 1, "11" = 4}'
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
        case dict():
            return "{" + ", ".join(f"{toml_text(key)} = {toml_text(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(toml_text, value)) + "]"
    raise TypeError(f"TOML has no {type(value).__name__}")
