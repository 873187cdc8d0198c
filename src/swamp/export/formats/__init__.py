"""File formats of exported networks. Each format is one module of this package, found by discovery.

A format module defines

    name                                  what `--format` calls it
    narrows                               whether channel-pruned networks are stored as smaller dense ones
    float32_only                          whether it refuses 16-bit values
    encode_network(network) -> Exported   the bytes of a file

where wanted

    suffixes                              the endings of file names that mean this format where none is named, such as (".onnx",)

and, if `swamp bench-inference` can open its files,

    runtime                               torch or onnxruntime
    recognises(path) -> bool              whether a file has this format
    read_about(path) -> dict              the description in a file: its task and settings, above all
    load(path, model, threads)            a module that computes with the file's weights; `model` is an untrained one of the task
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.discovery import modules_with
from swamp.core.errors import nearest, reason_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.export.narrow import narrowed
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task
from swamp.tasks.text import TextTask

ValueType = Literal["float32", "float16", "bfloat16"]  # types of the stored weights of pruned layers


class TrainedNetwork(NamedTuple):
    """A network to be written to a file."""

    model: nn.Module  # in evaluation mode; a narrowed one where the format narrows
    state: State  # the weights at full width
    mask: Mask
    task: Task
    values: ValueType
    about: Mapping[str, Any]  # what the file says about the network


class Exported(NamedTuple):
    """The bytes of a file and what was found while writing it."""

    content: bytes
    notes: list[str]  # sentences for the user


@cache
def formats() -> dict[str, ModuleType]:
    """Return all formats by name."""
    return modules_with(sys.modules[__name__], "encode_network")


def find_format(name: str) -> ModuleType:
    """Return the format that `--format` names."""
    if name not in formats():
        raise ValueError(f"unknown format {name!r}; {nearest(name, formats())}")
    return formats()[name]


def format_for(path: Path) -> ModuleType:
    """Return the format that a file is to be written in, by its suffix."""
    known = {suffix: module for module in formats().values() for suffix in getattr(module, "suffixes", ())}
    if path.suffix not in known:
        named = ", ".join(f"{suffix} ({module.name})" for suffix, module in known.items())
        raise ValueError(f"the name {str(path)!r} says no format: give it a suffix out of {named}, or name the format")
    return known[path.suffix]


def format_of(path: Path) -> ModuleType:
    """Return the format of a file that `swamp bench-inference` is to open."""
    return next(module for module in formats().values() if hasattr(module, "recognises") and module.recognises(path))


def export(state: State, mask: Mask, task: Task, name: str, values: ValueType, about: Mapping[str, Any], narrow: bool = False) -> Exported:
    """Encode a network in a format. `narrow` leaves out channels that no layer reads, if the format does that."""
    chosen, model = find_format(name), task.model()
    notes: list[str] = []
    state.into(model)
    model.eval()
    if narrow and chosen.narrows:
        if values != "float32":
            raise ValueError(f"--values {values}: a narrowed network keeps its float32 weights; --format sparse takes other values")
        original = model
        model, notes = _narrowed(original, task)
        about = {**about, "narrowed": model is not original}
    elif values != "float32":
        if chosen.float32_only:
            raise ValueError(f"--values {values}: {name} files hold the float32 weights that they compute with; use another format")
        notes = [_rounding_note(model, state, mask, task, values)]
    made = chosen.encode_network(TrainedNetwork(model, state, mask, task, values, about))
    return Exported(made.content, [*notes, *made.notes])


def _narrowed(model: nn.Module, task: Task) -> tuple[nn.Module, list[str]]:
    """Return the narrower network, or the given one if there is none, and sentences about it."""
    try:
        inputs, named = two_examples(task)
        small, stayed = narrowed(model, *inputs, **named)
    except Exception as error:  # torch.export refuses models in many ways, and they can still be stored at full width
        return model, [f"not narrowed, pruned channels are zeros: the model cannot be read as a graph of known sizes ({reason_of(error)})"]
    notes = [f"at full width, with zeros: {'; '.join(stayed)}"] if stayed else []
    if small is model:
        return model, ["not narrowed: no channel is left unread by all layers that could read it", *notes]
    before, after = (sum(p.numel() for p in one.parameters()) for one in (model, small))
    ours, theirs = (task.evaluate(one, "test")[task.metric] for one in (model, small))
    return small, [f"narrowed to {after:,} of {before:,} parameters: {task.metric} on the test set {theirs:.4f}, before {ours:.4f}", *notes]


def _rounding_note(model: nn.Module, state: State, mask: Mask, task: Task, values: ValueType) -> str:
    """Say how storing the pruned layers as `values` changes the metric."""
    before = task.evaluate(model, "test")[task.metric]
    stored = {name: rounded(state.parameters[name], values, name).float() for name in mask.layers}
    State({**state.parameters, **stored}, state.buffers).into(model)
    after = task.evaluate(model, "test")[task.metric]
    state.into(model)
    return f"{values} values: {task.metric} on the test set {after:.4f}, with float32 values {before:.4f} (change {after - before:+.4f})"


def rounded(weights: Tensor, values: ValueType, name: str) -> Tensor:
    """Return the weights of a pruned layer in the type in which they are stored."""
    if weights.dtype != torch.float32:
        raise ValueError(f"{name} has type {str(weights.dtype).removeprefix('torch.')}; a sparse file holds weights that were float32")
    stored = weights.to(getattr(torch, values))
    if not stored.isfinite().equal(weights.isfinite()):
        raise ValueError(f"a weight of {name} is too large for {values}")
    return stored


def example_input(task: Task) -> Tensor | dict[str, Tensor]:
    """Return a batch of inputs for a network of this task: one tensor, or for texts several tensors by name."""
    batch = _first_batch(task)
    if isinstance(task, TextTask):
        return _without_labels(batch)
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if not isinstance(inputs, Tensor):
        raise ValueError("export to a graph takes networks whose input is one tensor; this task's batches are something else")
    return inputs


def two_examples(task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments of a network of any task, for two examples: a graph of one would take 1 for a constant."""
    if isinstance(task, OwnLoopTask):
        raise ValueError("its inputs are known to your own loop alone")
    batch = _first_batch(task)
    given = repeat_first(_without_labels(batch) if isinstance(batch, Mapping) else batch[0])
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given), {}) if isinstance(given, (tuple, list)) else ((given,), {})


def repeat_first(inputs: Any) -> Any:
    """Return the first example of a batch twice."""
    return pytree.tree_map(lambda leaf: leaf[:1].repeat(2, *[1] * (leaf.ndim - 1)) if isinstance(leaf, Tensor) else leaf, inputs)


def _first_batch(task: Task) -> Any:
    return task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)


def _without_labels(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
