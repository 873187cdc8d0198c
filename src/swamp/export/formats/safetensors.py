"""safetensors: dense tensors with zeros, under the model's own names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from swamp.core.keys import canonical
from swamp.export.formats import Exported, TrainedNetwork, rounded, sparse
from swamp.export.narrow import shaped_like

name = "safetensors"
suffixes = (".safetensors",)
narrows, float32_only = True, False
runtime = "torch"


def encode_network(network: TrainedNetwork) -> Exported:
    # A single metadata entry, because safetensors writes several in no fixed order.
    content = safetensors.torch.save(dense_tensors(network), {"swamp": canonical(dict(network.about)).decode()})
    return Exported(content, reading_notes(network))


def reading_notes(network: TrainedNetwork) -> list[str]:
    """Say how a narrowed network is read, whose tensors the model's `load_state_dict` refuses."""
    narrowed = network.about.get("narrowed", False)
    return (
        ["smaller tensors than the model's: swamp.export.narrow.shaped_like(model, tensors) makes one that takes them"] if narrowed else []
    )


def dense_tensors(network: TrainedNetwork) -> dict[str, Tensor]:
    """Return what `load_state_dict` takes. Tied weights appear under each of their names; pruned tensors have the type `values`."""
    given = network.model.state_dict()
    tensors = {key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for key, tensor in given.items()}
    if network.values != "float32":
        tensors |= {key: rounded(tensors[key], network.values, key) for key in network.mask.layers}
    return tensors


def recognises(path: Path) -> bool:
    return not sparse.recognises(path)


def read_about(path: Path) -> dict[str, Any]:
    with safetensors.safe_open(path, "pt") as file:
        return dict(json.loads(file.metadata()["swamp"]))


def load(path: Path, model: nn.Module, threads: int) -> nn.Module:
    tensors = safetensors.torch.load_file(path)
    model = shaped_like(model, tensors)
    model.load_state_dict(tensors)
    return model.eval()
