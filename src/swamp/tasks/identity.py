"""Describes a user's Python objects for content keys. The same code has the same description in every process, and an edited loss or
model has another one.

What a description has beside code and plain values (defaults, closures, decorators, settings of a class, objects that are held) is appended
only where there is some, so that simple code keeps the description that its stored runs began with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, partial, partialmethod
from inspect import isclass, isfunction, ismethod
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.keys import digest

PLAIN = (bool, int, float, complex, str, bytes, type(None))
NAMED = (torch.dtype, torch.device, torch.Size, Enum, range, slice)  # values that their text says in full
LIBRARIES = ("builtins", "lightning", "pytorch_lightning", "torch")  # Their classes are not the user's code.
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # attributes that torch gives every module


@dataclass(frozen=True)
class _Seen:
    """What a description has described already."""

    path: frozenset[int] = frozenset()  # the objects that hold what is described now; one of them may be held by it in turn
    functions: dict[Any, int] = field(default_factory=dict)  # Each is described once, with its number from then on.

    def inside(self, thing: Any) -> _Seen:
        return replace(self, path=self.path | {id(thing)})


def architecture(model: nn.Module, seen: _Seen | None = None) -> Any:
    """Describe a model's layers, their settings and the code of their forward passes and what these call, without the weights."""
    modules = list(model.modules())
    # A layer may hold another layer of the model in a list, say. That is described already, and its weights are the init's.
    path = (seen or _Seen()).path.union(map(id, modules))
    # The code of torch's own layers is known from its version, which a run records.
    own = {type(module) for module in modules if not type(module).__module__.startswith("torch.")}
    forwards = sorted((kind.__qualname__, str(_behaviour(kind.forward, _Seen()))) for kind in own)
    forwards += sorted((name, str(code)) for kind in own for name, code in _called_methods(kind, kind.forward, _Seen()))
    held = [_read_attributes(module, module.forward, _Seen(path)) if type(module) in own else [] for module in modules]
    # A number that a forward pass uses need not be in the module's repr.
    described = [ADDRESS.sub("", repr(model)), forwards, [_plain_attributes(module) for module in modules]]
    return [*described, held] if any(held) else described


def methods(model: nn.Module) -> Any:
    """Describe the code of all methods of a model's own classes: a loop may call others than forward, as Lightning calls training_step
    and configure_optimizers."""
    kinds = {base for module in model.modules() for base in type(module).__mro__}
    own = [kind for kind in kinds if kind.__module__.partition(".")[0] not in LIBRARIES]
    return sorted(
        [f"{kind.__qualname__}.{name}", str(_behaviour(function, _Seen()))]
        for kind in own
        for name, function in vars(kind).items()
        if isfunction(function)
    )


def identity(thing: Any, seen: _Seen | None = None) -> Any:
    """Describe a loss or a metric by its code, the values that it holds, and the functions of its own module that it calls."""
    seen = seen or _Seen()
    if isinstance(thing, PLAIN):
        return repr(thing)
    if id(thing) in seen.path:  # A function may hold itself.
        return ""
    seen = seen.inside(thing)
    if isinstance(thing, Tensor):
        return digest({"": thing})
    if isinstance(thing, NAMED):
        return repr(thing)
    if isinstance(thing, nn.Module):
        return [architecture(thing, seen), digest(dict(thing.state_dict(keep_vars=True)))]
    if isinstance(thing, Mapping):
        return [[str(key), identity(value, seen)] for key, value in thing.items()]
    if isinstance(thing, (tuple, list)):
        return [identity(value, seen) for value in thing]
    if isinstance(thing, (set, frozenset)):
        return sorted(str(identity(value, seen)) for value in thing)
    if isinstance(thing, partial):
        return [identity(part, seen) for part in (thing.func, thing.args, thing.keywords)]
    if ismethod(thing):
        owner, function = thing.__self__, thing.__func__
        called = _called_methods(_kind(owner), function, seen)
        return [identity(function, seen), identity(owner, seen), *called, *_read_attributes(owner, function, seen)]
    if isfunction(thing):
        held = [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
        return [thing.__qualname__, _code_and_globals(thing, seen), identity([thing.__defaults__, thing.__kwdefaults__, held], seen)]
    if not isclass(thing) and _functions(thing):  # It is a function whose results are cached, for example.
        return [type(thing).__qualname__, _behaviour(thing, seen)]
    if isinstance(name := getattr(thing, "__qualname__", None), str):  # It is a class or a function written in C.
        return name
    call = type(thing).__call__ if callable(thing) else None
    described = [type(thing).__qualname__, _behaviour(call, seen), _plain_attributes(thing)]
    return [*described, *_called_methods(type(thing), call, seen), *_read_attributes(thing, call, seen)]


def _plain_attributes(thing: Any) -> list[list[str]]:
    held = sorted(getattr(thing, "__dict__", {}).items())
    return [[name, repr(value)] for name, value in held if isinstance(value, PLAIN) and name != "training" and not name.startswith("_")]


def _read_attributes(thing: Any, function: Any, seen: _Seen) -> list[list[Any]]:
    """Describe the other attributes that a function of an object reads, itself or in what it calls: tables, tensors, functions, objects
    and private names. What no such code reads may change from call to call, and has no part."""
    read = {name for one in (function, *_called(_kind(thing), function).values()) for part in _functions(one) for name in _names(part)}
    known = {"training", *(name for name, _ in _plain_attributes(thing))} | (OF_EVERY_MODULE if isinstance(thing, nn.Module) else set())
    held = getattr(thing, "__dict__", {})
    found = {name: held[name] for name in sorted(read & held.keys() - known)}
    # A tensor with a gradient was computed from weights, which are described elsewhere.
    return [[name, identity(value, seen)] for name, value in found.items() if not (isinstance(value, Tensor) and value.requires_grad)]


def _kind(thing: Any) -> type:
    """Return the class whose methods a bound method of this object can call; a class method is bound to the class itself."""
    return thing if isclass(thing) else type(thing)


def _functions(thing: Any) -> list[Any]:
    """Return the Python functions of a callable or a property, the innermost first: a decorator puts another function around one."""
    found: list[Any] = []
    while thing is not None and thing not in found:
        if isfunction(thing):
            found.append(thing)
        if isinstance(thing, property):
            thing = thing.fget
        elif isinstance(thing, (cached_property, partialmethod)):
            thing = thing.func
        elif isinstance(thing, (classmethod, staticmethod)) or ismethod(thing):
            thing = thing.__func__
        else:
            wrapped = getattr(thing, "__dict__", {}).get("__wrapped__")
            thing = None if wrapped is thing else wrapped
    return found[::-1]


def _behaviour(function: Any, seen: _Seen) -> Any:
    """Describe a function's code, what decorates it, and the values and functions of the same module that these use."""
    if not (functions := _functions(function)):
        return ""
    innermost, *decorators = functions
    if innermost in seen.functions:
        return seen.functions[innermost]
    return [*_code_and_globals(innermost, seen), *_values(innermost, seen), *(identity(one, seen) for one in decorators)]


def _values(function: Any, seen: _Seen) -> list[Any]:
    """Describe the defaults of a function and the values that it holds from the function around it, where it has some. `super` holds the
    class, whose other methods have no part in it."""
    held = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell) and not isclass(cell.cell_contents)]
    values = [function.__defaults__, function.__kwdefaults__, held or None]
    return [identity(values, seen)] if any(value is not None for value in values) else []


def _code_and_globals(function: Any, seen: _Seen) -> Any:
    """Describe a function's code and the global names that it uses. From the second time on it has only a number: functions that call
    each other would otherwise be described once for each way through them."""
    if function in seen.functions:
        return seen.functions[function]
    seen.functions[function] = len(seen.functions)
    known = {name: function.__globals__[name] for name in _names(function) if name in function.__globals__}
    own = {name: _global(value, seen) for name, value in known.items() if _counts(value, function)}
    return [_code(function.__code__), [[name, description] for name, description in own.items()]]


def _counts(value: Any, function: Any) -> bool:
    """Return whether a global value decides what a function computes: a setting, a tensor, a network that is not trained, or what can be
    called and is of the same module. Other objects, such as a loader or a model that is trained, may be new in every process."""
    if isinstance(value, nn.Module):
        return not any(parameter.requires_grad for parameter in value.parameters())
    if isinstance(value, (Tensor, partial, NAMED)) or _is_setting(value):
        return True
    return callable(value) and getattr(value, "__module__", None) == function.__module__


def _global(value: Any, seen: _Seen) -> Any:
    """Describe a global value. Of a class of the function's own module the methods and settings count, since it may use any of them."""
    if not isclass(value) or id(value) in seen.path:
        return identity(value, seen)
    seen, members = seen.inside(value), sorted(vars(value).items())
    described = [[name, _member(member, seen)] for name, member in members if _functions(member) or _is_class_setting(name, member)]
    return [value.__qualname__, *described]


def _called_methods(kind: type, function: Any, seen: _Seen) -> list[list[Any]]:
    """Describe the methods, properties and settings of a class and its bases that a function reads by their name, and what these read."""
    return [[label, _member(member, seen)] for (label, _), member in sorted(_called(kind, function).items(), key=lambda item: item[0])]


def _called(kind: type, function: Any) -> dict[tuple[str, int], Any]:
    """Return these members by their name and, since a class and its base may be called the same, by how far up they are."""
    found: dict[tuple[str, int], Any] = {}
    to_read = _functions(function)
    known = set(to_read)
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in LIBRARIES]
    while to_read:
        names = _names(to_read.pop())
        for height, base, name in ((height, base, name) for height, base in enumerate(bases) for name in names if name in vars(base)):
            member, label = vars(base)[name], (f"{base.__qualname__}.{name}", height)
            functions = [one for one in _functions(member) if one not in known]
            if label not in found and (functions or _is_class_setting(name, member)):
                found[label] = member
                known.update(functions)
                to_read += functions
    return found


def _is_class_setting(name: str, value: Any) -> bool:
    """Return whether an attribute of a class counts that is no method. Names like __firstlineno__ are Python's own."""
    return not name.startswith("__") and (_is_plain(value) or isinstance(value, (Tensor, partial, NAMED)))


def _member(member: Any, seen: _Seen) -> Any:
    return _behaviour(member, seen) if _functions(member) else identity(member, seen)


def _names(function: Any) -> list[str]:
    """Return the names that a function refers to, also inside of the lambdas, comprehensions and functions that it defines."""
    return list(dict.fromkeys(_names_in(function.__code__)))


def _names_in(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _is_filled(cell: Any) -> bool:
    """Return whether a variable that a function shares with the one around it has a value by now."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_setting(value: Any) -> bool:
    """Return whether a global value counts. A list does not: a function may append to it, which would make it another function."""
    return not isinstance(value, list) and _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number or a text, or a dict, list or tuple of such values, as settings are."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, (tuple, list)) else isinstance(value, PLAIN)


def _code(code: CodeType) -> Any:
    """Describe the bytecode, in which comments and line numbers have no part. Minor versions of Python differ in it."""
    return [code.co_code.hex(), list(code.co_names), [_constant(constant) for constant in code.co_consts]]


def _constant(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        return _code(constant)
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
