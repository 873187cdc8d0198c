"""Describes a user's Python objects for content keys. The same code has the same description in every process, and an edited loss or
model has another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from inspect import isfunction, ismethod, unwrap
from types import CodeType
from typing import Any

from torch import Tensor, nn

from swamp.core.keys import digest

PLAIN = (bool, int, float, complex, str, bytes, type(None))
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def architecture(model: nn.Module) -> Any:
    """Describe a model's layers, their settings and the code of their forward passes and what these call, without the weights."""
    modules = list(model.modules())
    # The code of torch's own layers is known from its version, which a run records.
    own = {type(module) for module in modules if not type(module).__module__.startswith("torch.")}
    forwards = sorted((kind.__qualname__, str(_behaviour(kind.forward, frozenset()))) for kind in own)
    forwards += sorted((name, str(code)) for kind in own for name, code in _called_methods(kind, kind.forward, frozenset()))
    # A number that a forward pass uses need not be in the module's repr.
    return [ADDRESS.sub("", repr(model)), forwards, [_plain_attributes(module) for module in modules]]


def methods(model: nn.Module) -> Any:
    """Describe the code of all methods of a model's own classes: a loop may call others than forward, as Lightning calls training_step
    and configure_optimizers."""
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    own = [kind for kind in kinds if kind.__module__.partition(".")[0] not in ("builtins", "lightning", "pytorch_lightning", "torch")]
    return sorted(
        [f"{kind.__qualname__}.{name}", str(_behaviour(function, frozenset()))]
        for kind in own
        for name, function in vars(kind).items()
        if isfunction(function)
    )


def identity(thing: Any, seen: frozenset[int] = frozenset()) -> Any:
    """Describe a loss or a metric by its code, the values that it holds, and the functions of its own module that it calls."""
    if isinstance(thing, PLAIN):
        return repr(thing)
    if id(thing) in seen:  # A function may hold itself.
        return ""
    seen |= {id(thing)}
    if isinstance(thing, Tensor):
        return digest({"": thing})
    if isinstance(thing, nn.Module):
        return [architecture(thing), digest(dict(thing.state_dict(keep_vars=True)))]
    if isinstance(thing, Mapping):
        return [[str(key), identity(value, seen)] for key, value in thing.items()]
    if isinstance(thing, (tuple, list)):
        return [identity(value, seen) for value in thing]
    if isinstance(thing, partial):
        return [identity(part, seen) for part in (thing.func, thing.args, thing.keywords)]
    if ismethod(thing):
        called = _called_methods(type(thing.__self__), thing.__func__, seen)
        return [identity(thing.__func__, seen), identity(thing.__self__, seen), *called]
    if isfunction(thing):
        held = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [thing.__qualname__, _behaviour(thing, seen), identity([thing.__defaults__, thing.__kwdefaults__, held], seen)]
    if hasattr(thing, "__qualname__"):  # It is a class or a function written in C.
        return thing.__qualname__
    call = type(thing).__call__ if callable(thing) else None
    return [type(thing).__qualname__, _behaviour(call, seen), _plain_attributes(thing), *_called_methods(type(thing), call, seen)]


def _plain_attributes(thing: Any) -> list[list[str]]:
    held = sorted(getattr(thing, "__dict__", {}).items())
    return [[name, repr(value)] for name, value in held if isinstance(value, PLAIN) and name != "training" and not name.startswith("_")]


def _behaviour(function: Any, seen: frozenset[int]) -> Any:
    """Describe a function's code and the global names that it uses: settings, and functions of the same module."""
    if not isfunction(function):
        return ""
    function = unwrap(function)
    known = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    own = {name: value for name, value in known.items() if _same_module(value, function) or _is_setting(value)}
    return [_code(function.__code__), identity(own, seen)]


def _called_methods(kind: type, function: Any, seen: frozenset[int]) -> list[list[Any]]:
    """Describe the methods and properties of a class and its bases that a function calls by their name, and those that these call."""
    found: dict[str, Any] = {}
    to_read = [function] if isfunction(function) else []
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in ("builtins", "torch")]
    while to_read:
        names = _names(unwrap(to_read.pop()).__code__)
        for base, name in ((base, name) for base in bases for name in names if name in vars(base)):
            method = vars(base)[name]
            method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)  # of a class or static method
            label = f"{base.__qualname__}.{name}"
            if isfunction(method) and method is not function and label not in found:
                found[label] = method
                to_read.append(method)
    return [[label, _behaviour(method, seen)] for label, method in sorted(found.items())]


def _names(code: CodeType) -> list[str]:
    """Return the names that code refers to, also inside of the lambdas, comprehensions and functions that it defines."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def _is_setting(value: Any) -> bool:
    """Return whether a global value counts. A list does not: a function may append to it, which would make it another function."""
    return not isinstance(value, list) and _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number or a text, or a dict, list or tuple of such values, as settings are."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, (tuple, list)) else isinstance(value, PLAIN)


def _same_module(value: Any, function: Any) -> bool:
    return isfunction(value) and value.__module__ == function.__module__


def _code(code: CodeType) -> Any:
    """Describe the bytecode, in which comments and line numbers have no part. Minor versions of Python differ in it."""
    return [code.co_code.hex(), list(code.co_names), [_constant(constant) for constant in code.co_consts]]


def _constant(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        return _code(constant)
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
