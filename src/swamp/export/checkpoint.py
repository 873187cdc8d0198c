"""Read checkpoints: files of `swamp export`, or any safetensors and state_dict files with the model's own names."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats import sparse

LEGACY_PREFIX = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # refused, because their size cannot be bounded before they are read


def read_checkpoint(path: Path, model: nn.Module) -> tuple[State, Mask | None]:
    """Return the weights in a file, which must fit the model, and the mask if the file is sparse. In other files a zero is a weight like
    any other. Nothing in a file is executed."""
    like = State.of(model)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; name a file in it")
    if path.exists() and not path.is_file():  # A pipe or device could be read forever, or not at all.
        raise ValueError(f"{path} is no regular file; name a file with weights")
    try:
        found = _tensors(path)
    except pickle.UnpicklingError:  # torch's own message advises to run what the file holds
        raise ValueError(f"{path} is damaged or holds more than tensors, and nothing in a file is run: save a state_dict()") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # the libraries raise all kinds of errors for damaged files
        raise ValueError(f"{path} is no checkpoint that can be read: {reason_of(error)}") from None
    if found is None:
        state, mask, _ = sparse.read_sparse(path, like)
    else:
        state, mask = _fitted(path, found, model, like), None
    if broken := [name for name, tensor in state.parameters.items() if not tensor.isfinite().all()]:
        raise ValueError(f"{broken[0]} in {path} is not finite everywhere")
    return state, mask


def _tensors(path: Path) -> object:
    """Return the content of a state_dict or safetensors file, or None for a sparse file."""
    if zipfile.is_zipfile(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch 2.11 warns of sparse tensors, which are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    with path.open("rb") as file:
        if file.read(len(LEGACY_PREFIX)) == LEGACY_PREFIX:
            raise ValueError("it is of the kind that torch wrote before 1.6; load it and save it again")
    return None if sparse.recognises(path) else safetensors.torch.load_file(path)


def _fitted(path: Path, found: object, model: nn.Module, like: State) -> State:
    """Return the model's state with every parameter, and those buffers that the file has, from the file."""
    if not isinstance(found, dict) or not all(_is_plain(tensor) for tensor in found.values()):
        inside = f"; its {', '.join(map(repr, list(found)[:3]))} may be one" if isinstance(found, dict) and len(found) < 10 else ""
        raise ValueError(f"{path} holds no state_dict: names with an ordinary tensor each{inside}")
    if missing := [name for name in like.parameters if name not in found]:
        raise ValueError(f"{path} lacks {', '.join(missing[:3])} of the model")
    if foreign := [name for name in found if name not in model.state_dict()]:
        raise ValueError(f"{path} holds {', '.join(map(str, foreign[:3]))}, which the model has not")
    wanted = {**like.parameters, **like.buffers}
    for name, tensor in wanted.items():
        if name in found and found[name].shape != tensor.shape:
            raise ValueError(f"{name} has shape {list(found[name].shape)} in {path}, {list(tensor.shape)} in the model")
    tensors = {name: found.get(name, tensor).to(tensor.dtype) for name, tensor in wanted.items()}
    return State.copy({name: tensors[name] for name in like.parameters}, {name: tensors[name] for name in like.buffers})


def _is_plain(tensor: object) -> bool:
    return isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
