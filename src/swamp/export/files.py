"""One network as the bytes of a file, in any format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import nn

from swamp.core.errors import reason_of
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import narrow as narrowing
from swamp.export import onnx, plain, sparse
from swamp.export.sparse import Values
from swamp.tasks.task import Task

Kind = Literal["sparse", "safetensors", "onnx", "torch"]


class Exported(NamedTuple):
    """A network's file, and what was found about it on the way."""

    content: bytes
    notes: list[str]  # sentences for whoever asked for it


def export(state: State, mask: Mask, task: Task, kind: Kind, values: Values, about: Mapping[str, Any], narrow: bool = False) -> Exported:
    """`narrow`: leave out channels that nobody reads, except in sparse files, which keep the network's shapes."""
    model = task.model()
    state.into(model)
    model.eval()
    if narrow and kind != "sparse":
        return _narrowed(model, mask, task, kind, values, about)
    if kind == "onnx":
        return _onnx(model, task, values, about)
    notes = []
    if values != "float32":
        stored = {name: sparse.rounded(state.parameters[name], values, name).float() for name in mask.layers}
        notes.append(_change(task, model, State({**state.parameters, **stored}, state.buffers), values))
        state.into(model)
    if kind == "sparse":
        content = sparse.encode(state, mask, values, about)
        least = sparse.bound(state, mask, values)
        notes.append(f"entropy bound {least:,.0f} bytes; the file is {len(content) / least:.3f} times that")
        return Exported(content, notes)
    tensors = plain.standard_tensors(model, mask, values)
    return Exported(plain.as_torch(tensors) if kind == "torch" else plain.as_safetensors(tensors, about), notes)


def _narrowed(model: nn.Module, mask: Mask, task: Task, kind: Kind, values: Values, about: Mapping[str, Any]) -> Exported:
    if values != "float32":
        raise ValueError(f"--values {values}: a narrowed network keeps its float32 weights; --format sparse takes other values")
    small, note = _smaller(model, mask, task)
    about = {**about, "narrowed": small is not model}
    if kind == "onnx":
        made = _onnx(small, task, values, about)
        return made._replace(notes=[note, *made.notes])
    tensors = plain.standard_tensors(small, mask, values)
    return Exported(plain.as_torch(tensors) if kind == "torch" else plain.as_safetensors(tensors, about), [note])


def _smaller(model: nn.Module, mask: Mask, task: Task) -> tuple[nn.Module, str]:
    """The narrower network, or the one that is given, and a sentence about it."""
    try:
        inputs, named = onnx.two_examples(task)
        small = narrowing.narrowed(model, mask, *inputs, **named)
    except Exception as error:  # torch refuses models in many ways, and their weights can leave as they are
        return model, f"not narrowed, pruned channels are zeros: the model's graph cannot be read ({reason_of(error)})"
    before, after = (sum(p.numel() for p in one.parameters()) for one in (model, small))
    if before == after:
        return model, "not narrowed, pruned channels are zeros: each of them enters a sum, or a layer of another kind, or is read elsewhere"
    ours, theirs = (task.evaluate(one, "test")[task.metric] for one in (model, small))
    return small, f"narrowed to {after:,} of {before:,} parameters: {task.metric} on the test set {theirs:.4f}, before {ours:.4f}"


def dense_bytes(state: State) -> int:
    """What the network takes without any zeros left out."""
    return sum(t.numel() * t.element_size() for t in (*state.parameters.values(), *state.buffers.values()))


def refuse_existing(paths: list[Path], overwrite: bool) -> None:
    """Nothing is overwritten unless that was asked for."""
    for path in paths:
        if path.is_dir():
            raise ValueError(f"--out {path} is a directory; name a file")
        if path.exists() and not overwrite:
            raise ValueError(f"{path} is there already; --overwrite replaces it")


def _onnx(model: nn.Module, task: Task, values: Values, about: Mapping[str, Any]) -> Exported:
    if values != "float32":
        raise ValueError(f"--values {values}: a graph in ONNX computes with the float32 weights that it holds; use another format")
    content = onnx.as_onnx(model, task, about)
    check = onnx.check(content, model, task)
    ours, theirs = check.torch_metrics[task.metric], check.onnx_metrics[task.metric]
    apart = "" if check.largest_difference is None else f"; outputs differ by {check.largest_difference:.1e} at most"
    return Exported(content, [f"on the test set, {task.metric} {ours:.4f} in torch and {theirs:.4f} in onnxruntime{apart}"])


def _change(task: Task, model: nn.Module, stored: State, values: Values) -> str:
    before = task.evaluate(model, "test")[task.metric]
    stored.into(model)
    after = task.evaluate(model, "test")[task.metric]
    return f"{values} values: {task.metric} on the test set {after:.4f}, with float32 values {before:.4f} (change {after - before:+.4f})"
