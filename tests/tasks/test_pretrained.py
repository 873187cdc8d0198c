from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from swamp.tasks import pretrained
from swamp.tasks.text import Config, TextTask
from tests.support.made_up_text import transformers, write_checkpoint


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The hub's own switch, and an empty cache."""
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["roberta-base", "somebody/some-model"])
def test_offline_it_says_so_in_a_sentence(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"model '{name}' was not found: it is no folder, not in the Hugging Face cache.* offline, give"
    ) as info:
        pretrained.read_config(name, 2)
    assert "\n" not in str(info.value)


def test_without_the_extra_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"task 'text' needs the extra `text`: pip install 'swamp\[text\]'"):
        TextTask(Config())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for model in (str(tmp_path / "nothing"), "./nothing", "~/nothing-at-all"):
        with pytest.raises(ValueError, match="was not found: there is no such folder"):
            pretrained.read_config(model, 2)


def test_a_folder_without_a_checkpoint_or_with_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no checkpoint that transformers can read: "):
        pretrained.read_config(str(tmp_path), 2)
    write_checkpoint(tmp_path / "bert")
    config = pretrained.read_config(str(tmp_path / "bert"), 2)
    weights = tmp_path / "bert" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="holds no checkpoint that transformers can read: "):
        pretrained.read_encoder(str(tmp_path / "bert"), config)


def test_a_checkpoint_does_not_choose_code_that_runs(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"attn_implementation": "stranger/kernel"}))
    with pytest.raises(ValueError, match="asks for the attention 'stranger/kernel', which is code from elsewhere"):
        pretrained.read_config(str(folder), 2)
    (folder / "evil.py").write_text("raise SystemExit(77)\n")
    (folder / "config.json").write_text(json.dumps(settings | {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}))
    with pytest.raises(ValueError, match="holds no checkpoint that transformers can read"):
        pretrained.read_config(str(folder), 2)


def test_an_encoder_that_is_not_whole(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 3}))
    with pytest.raises(ValueError, match=r"lacks weights of its encoder \(bert\.encoder\.layer\.2"):
        pretrained.read_encoder(str(folder), pretrained.read_config(str(folder), 2))


def test_a_tokenizer_without_padding(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="has no padding token"):
        pretrained.read_tokenizer(str(folder))


def test_half_precision_checkpoints_become_float32(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    model = transformers.AutoModel.from_pretrained(folder).half()
    model.save_pretrained(folder)
    config = pretrained.read_config(str(folder), 2)
    kinds = {str(tensor.dtype) for tensor in pretrained.read_encoder(str(folder), config).values()}
    kinds |= {str(tensor.dtype) for tensor in pretrained.new_classifier(config).parameters()}
    assert kinds == {"torch.float32"}


def test_loading_says_nothing_and_leaves_logging_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "bert")
    logging: Any = transformers.utils.logging
    capfd.readouterr()
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    pretrained.read_encoder(str(folder), pretrained.read_config(str(folder), 2))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize("kind", ["DistilBert", "Electra", "Albert"])
def test_other_architectures(kind: str) -> None:
    small = {"vocab_size": 30, "num_hidden_layers": 1, "n_layers": 1, "num_attention_heads": 2, "n_heads": 2}
    small |= {"hidden_size": 16, "dim": 16, "intermediate_size": 32, "hidden_dim": 32, "embedding_size": 8, "max_position_embeddings": 20}
    model = pretrained.new_classifier(getattr(transformers, f"{kind}Config")(**small))
    names = pretrained.encoder_weights(model)
    assert len(names) == 6
    assert not any(part in name for name in names for part in ("classifier", "pooler", "embedding"))
    assert pretrained.num_positions(model) == 20
