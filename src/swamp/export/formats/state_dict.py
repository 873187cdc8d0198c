"""torch: a state_dict of dense tensors with zeros, which `torch.load(…, weights_only=True)` reads."""

from __future__ import annotations

import io

import torch

from swamp.export.formats import Exported, TrainedNetwork
from swamp.export.formats.safetensors import dense_tensors, reading_notes

name = "torch"
suffixes = (".pt", ".pth")
narrows, float32_only = True, False


def encode_network(network: TrainedNetwork) -> Exported:
    file = io.BytesIO()
    torch.save(dense_tensors(network), file)
    return Exported(file.getvalue(), reading_notes(network))
