"""Plain files: dense tensors with zeros, under the model's own names."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from swamp.core.keys import canonical
from swamp.core.mask import Mask
from swamp.export.sparse import Values, rounded


def standard_tensors(model: nn.Module, mask: Mask, values: Values) -> dict[str, Tensor]:
    """What `load_state_dict` takes. Tied weights stand under each of their names; pruned tensors have the type `values`."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    if values != "float32":
        tensors |= {name: rounded(tensors[name], values, name) for name in mask.layers}
    return tensors


def as_safetensors(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """One metadata entry: several would be written in no fixed order."""
    return safetensors.torch.save(dict(tensors), {"swamp": canonical(dict(about)).decode()})


def as_torch(tensors: Mapping[str, Tensor]) -> bytes:
    """A state_dict that `torch.load(…, weights_only=True)` reads."""
    file = io.BytesIO()
    torch.save(dict(tensors), file)
    return file.getvalue()
