from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.checkpoint import read_checkpoint
from swamp.export.formats.sparse import encode
from tests.support.hostile import torn


class Model(nn.Module):
    """One with a buffer that is not saved, and a weight of two names."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first, self.bn, self.second = nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(4, width)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.arange(2.0), persistent=False)


def write(kind: str, path: Path, model: nn.Module) -> Mask | None:
    mask = Mask({"first.weight": torch.rand(3, 4) < 0.5})
    if kind == "sparse":
        mask.apply(State.of(model)).into(model)
        path.write_bytes(encode(State.of(model), mask))
        return mask
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(tensors, path) if kind == "safetensors" else torch.save(tensors, path)
    return None


@pytest.mark.parametrize("kind", ["sparse", "safetensors", "torch"])
def test_every_kind_comes_back(kind: str, tmp_path: Path) -> None:
    model = Model()
    mask = write(kind, tmp_path / "m", model)
    state, found = read_checkpoint(tmp_path / "m", Model())
    assert state.digest() == State.of(model).digest()
    assert (found and found.digest) == (mask and mask.digest)
    with pytest.raises(ValueError, match="has shape"):
        read_checkpoint(tmp_path / "m", Model(4))


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("evil"),)


def test_files_that_are_none_get_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m"
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_checkpoint(path, Model())
    for content in (b"", b"nonsense" * 10, pickle.dumps(Evil())):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="no checkpoint that can be read"):
            read_checkpoint(path, Model())
    for whole in (Evil(), Model()):
        torch.save(whole, path)
        with pytest.raises(ValueError, match="holds more than tensors") as refused:
            read_checkpoint(path, Model())
        assert "weights_only" not in str(refused.value)  # torch's own advice would run what it holds
    torch.save(Model().state_dict(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"before 1\.6"):
        read_checkpoint(path, Model())
    with pytest.raises(ValueError, match="is a directory"):
        read_checkpoint(tmp_path, Model())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is no regular file"):
        read_checkpoint(tmp_path / "pipe", Model())
    assert not (tmp_path / "evil").exists()  # nothing of it was run
    for found, why in [
        ([1], "holds no state_dict"),
        ({name: t.to_sparse() for name, t in Model().state_dict().items()}, "holds no state_dict"),
        ({"state_dict": Model().state_dict(), "epoch": 3}, "its 'state_dict', 'epoch' may be one"),
        ({**Model().state_dict(), "bn.bias": torch.full((3,), torch.nan)}, "bn.bias in .* is not finite"),
        ({"x": torch.ones(1)}, "lacks first.weight"),
        ({**Model().state_dict(), "x": torch.ones(1)}, "holds x"),
    ]:
        torch.save(found, path)
        with pytest.raises(ValueError, match=why):
            read_checkpoint(path, Model())


def test_a_sparse_file_of_a_larger_model_is_sound_but_another(tmp_path: Path) -> None:
    write("sparse", tmp_path / "m", Model())
    with pytest.raises(ValueError, match="holds a larger network than the model"):
        read_checkpoint(tmp_path / "m", nn.Linear(2, 2))


@pytest.mark.parametrize("kind", ["torch", "safetensors"])
def test_torn_files_get_one_sentence(kind: str, tmp_path: Path) -> None:
    model, path, draw = Model(), tmp_path / "m", random.Random(0)
    write(kind, path, model)
    good = path.read_bytes()
    refusals = []
    for _ in range(400):
        path.write_bytes(torn(bytearray(good), draw))
        try:
            read_checkpoint(path, model)
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert all(str(path) in refusal and "\n" not in refusal for refusal in refusals)
