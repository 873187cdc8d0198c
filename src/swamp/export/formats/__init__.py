"""File formats of exported networks. Each format is one module of this package, found by discovery.

A format module defines

    name                                  what `--format` calls it
    narrows                               whether channel-pruned networks are stored as smaller dense ones
    float32_only                          whether it refuses values of fewer bits
    encode_network(network) -> Exported   the bytes of a file

where wanted

    takes_int8                            whether it stores 8-bit values
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

from swamp.core.discovery import modules_with
from swamp.core.errors import nearest, reason_of
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.export.narrow import narrowed
from swamp.export.program import NetworkProgram, NoProgram, read_program
from swamp.export.program.graphs import repeated
from swamp.export.quantise import quantise, with_rounded_weights
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task
from swamp.tasks.text import TextTask

ValueType = Literal["float32", "float16", "bfloat16", "int8"]  # types of the stored weights of pruned layers

# By how much outputs may differ from torch's, relative to the largest. Another order of summation in float32 changes them by about 1e-6.
TOLERANCE = 1e-3
CALIBRATION_EXAMPLES, CALIBRATION_BATCH = 512, 64
LARGE_CHANGE = 0.3  # points of a metric that is written in percent


class TrainedNetwork(NamedTuple):
    """A network to be written to a file."""

    model: nn.Module  # in evaluation mode; a narrowed one where the format narrows
    state: State  # the weights at full width
    mask: Mask
    task: Task
    values: ValueType
    about: Mapping[str, Any]  # what the file says about the network
    program: NetworkProgram | None = None  # its program, if the graph was already read
    has_no_program: bool = False  # whether the graph was read and cannot be a program


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
        raise ValueError(f"the name {str(path)!r} does not end in the suffix of a format: use one of {named}, or name the format")
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
    state = State.of(model)  # in the model's order, whatever order it came in: equal networks give equal files
    if narrow and chosen.narrows:
        if values != "float32":
            raise ValueError(f"--values {values}: a narrowed network keeps its float32 weights; --format sparse takes other values")
        original = model
        model, notes = _narrowed(original, task)
        about = {**about, "narrowed": model is not original}
    elif values != "float32":
        if chosen.float32_only:
            raise ValueError(f"--values {values}: {name} files hold the float32 weights that they compute with; use another format")
        if values != "int8":
            notes = [_rounding_note(model, state, mask, task, values)]
        elif not getattr(chosen, "takes_int8", False):
            raise ValueError(f"--values int8: {name} files hold floats; --format sparse takes 8-bit values")
        else:
            return _quantised(chosen, TrainedNetwork(model, state, mask, task, values, about))
    made = chosen.encode_network(TrainedNetwork(model, state, mask, task, values, about))
    return Exported(made.content, [*notes, *made.notes])


def _quantised(chosen: ModuleType, network: TrainedNetwork) -> Exported:
    """Encode a network with 8-bit weights and, where its graph can be read, 8-bit inputs of the pruned layers."""
    task, model, mask = network.task, network.model, network.mask
    before = task.evaluate(model, "test")[task.metric]
    count = min(CALIBRATION_EXAMPLES, task.size("train"))
    try:
        found = quantise(program_of(model, task), model, mask, lambda module: _calibrate(module, task, count))
        simulated, program = found.simulated, found.program
        rounded_layers = sum("input" in node for node in program.program["nodes"])
        how = f"8-bit weights, and 8-bit inputs of {rounded_layers} layers, calibrated on {count} training examples"
    except NoProgram as error:
        simulated, program = with_rounded_weights(model, mask), None
        how = f"8-bit weights, but no 8-bit inputs, because the file holds no program ({error})"
    if transposed := [name for name, tensor in program.tensors.items() if is_sparse(tensor)] if program else []:
        raise ValueError(
            f"--values int8: this network multiplies with a pruned weight that it transposes or computes first ({transposed[0]}), "
            "whose rows are not those of the weight; use float16"
        )
    after = task.evaluate(simulated, "test")[task.metric]
    change = after - before
    is_large = task.metrics[task.metric].scale == 100 and 100 * abs(change) > LARGE_CHANGE
    loud = f"; this is more than {LARGE_CHANGE} points" if is_large else ""
    note = f"int8 values: {task.metric} on the test set {after:.4f}, with float32 values {before:.4f} (change {change:+.4f}{loud}): {how}"
    made = chosen.encode_network(network._replace(program=program, has_no_program=program is None))
    return Exported(made.content, [note, *made.notes])


def _calibrate(module: nn.Module, task: Task, count: int) -> None:
    """Call a module with examples of the training set, spread evenly over it and not augmented."""
    rows = torch.linspace(0, task.size("train") - 1, count).round().long()
    for some in rows.split(CALIBRATION_BATCH):
        task.loss(module, task.unaugmented(some, torch.device("cpu")))


def program_of(model: nn.Module, task: Task) -> NetworkProgram:
    """Return the program of a task's network, for texts of any length, or raise `NoProgram`."""
    return read_program(model, *called_with(model, task), free_length=isinstance(task, TextTask))


Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a forward pass: positional and named ones


def called_with(model: nn.Module, task: Task) -> Arguments:
    """Return what a task calls its network with, for two examples if it has so many, or raise `NoProgram`."""
    if isinstance(task, OwnLoopTask):
        raise NoProgram("only your own training loop knows its inputs")
    calls: list[Arguments] = []
    # A hook leaves the model as it is, because a loss may read its layers, too.
    hook = model.register_forward_pre_hook(lambda _, inputs, named: calls.append((inputs, named)), with_kwargs=True)
    try:
        with torch.no_grad():
            task.loss(model, task.unaugmented(torch.arange(min(2, task.size("train"))), torch.device("cpu")))
    except Exception as error:
        raise NoProgram(f"the network cannot be called with an example of its task ({reason_of(error)})") from None
    finally:
        hook.remove()
    if not calls:
        raise NoProgram("the loss of its task does not call the network itself")
    inputs, named = calls[-1]
    return inputs, _without_labels(named)


def _narrowed(model: nn.Module, task: Task) -> tuple[nn.Module, list[str]]:
    """Return the narrower network, or the given one if there is none, and sentences about it."""
    try:
        inputs, named = two_examples(model, task)
        small, stayed = narrowed(model, *inputs, **named)
    except Exception as error:  # torch.export refuses models in many ways, and they can still be stored at full width
        return model, [f"not narrowed, pruned channels are zeros: the model cannot be read as a graph of known sizes ({reason_of(error)})"]
    notes = [f"at full width, with zeros: {'; '.join(stayed)}"] if stayed else []
    if small is model:
        return model, ["not narrowed: no channel can be left out", *notes]
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


def is_sparse(tensor: Tensor) -> bool:
    """Whether most of a tensor is zero, so that it is stored as a pruned one."""
    return 2 * int(tensor.count_nonzero()) < tensor.numel()


def example_input(task: Task) -> Tensor | dict[str, Tensor]:
    """Return a batch of inputs for a network of this task: one tensor, or for texts several tensors by name."""
    batch = task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)
    if isinstance(task, TextTask):
        return _without_labels(batch)
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
    if not isinstance(inputs, Tensor):
        why = "only your own training loop knows the inputs" if isinstance(task, OwnLoopTask) else "the batches of this task are different"
        raise ValueError(
            f"export to a graph takes networks whose input is one tensor, but {why}: torch.onnx.export writes the graph of a loaded model "
            "with inputs of your own"
        )
    return inputs


def two_examples(model: nn.Module, task: Task) -> Arguments:
    """Return what a task calls its network with, for two examples. With one example torch would take the batch size 1 for a constant."""
    found: Arguments = repeated(called_with(model, task), 2)
    return found


def as_arguments(example: Any) -> Arguments:
    """Return an example as positional and named arguments: a tensor, a tuple of positional or a dict of named ones."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, (tuple, list)) else (example,)), {}


def _without_labels(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}
