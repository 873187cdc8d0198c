"""Reads checkpoints of `transformers` from a folder, or by name from the Hugging Face hub.

The package is an extra. It is imported when a text task is first used, because that takes a second.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of


def transformers() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ValueError(f"task 'text' needs the extra `text`: pip install 'swamp[text]' ({error})") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars, and reports that the checkpoint has no classifier, which is expected."""
    logging, hub = transformers().utils.logging, importlib.import_module("huggingface_hub.utils.logging")
    before, hub_before, bars = logging.get_verbosity(), hub.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    hub.set_verbosity(hub.ERROR)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        hub.set_verbosity(hub_before)
        if bars:
            logging.enable_progress_bar()


def read_config(model: str, num_classes: int) -> Any:
    """Return the checkpoint's configuration, for a classifier with this number of classes."""
    config = _read(model, transformers().AutoConfig.from_pretrained, num_labels=num_classes)
    # transformers would fetch an attention of this form from the hub, and run it.
    if "/" in str(attention := getattr(config, "_attn_implementation", None)):
        raise ValueError(
            f"model {model!r} asks for the attention {attention!r}, which is code from elsewhere; nothing of a checkpoint is run"
        )
    return config


def read_tokenizer(model: str) -> Any:
    tokenizer = _read(model, transformers().AutoTokenizer.from_pretrained)
    if tokenizer.pad_token is None:
        raise ValueError(f"the tokenizer of model {model!r} has no padding token, so that texts of different lengths cannot share a batch")
    tokenizer.padding_side = "right"  # Batches are cut off on the right.
    return tokenizer


def new_classifier(config: Any) -> nn.Module:
    """Return the architecture with newly drawn weights."""
    classifier: nn.Module = transformers().AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    return classifier


def read_encoder(model: str, config: Any) -> dict[str, Tensor]:
    """Return the encoder's parameters from the checkpoint, by their names in the classifier. The checkpoint's own head is not used."""
    classifier, report = _read(
        model,
        transformers().AutoModelForSequenceClassification.from_pretrained,
        config=config,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    missing = {*report["missing_keys"], *(key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"])}
    names = [name for name, _ in classifier.named_parameters() if in_encoder(name, classifier)]
    # BERT's pooler is the only part of an encoder that a checkpoint may lack.
    if lacking := [name for name in names if name in missing and "pooler" not in name]:
        raise ValueError(f"the checkpoint of model {model!r} lacks weights of its encoder ({', '.join(lacking[:3])} …)")
    tensors = dict(classifier.named_parameters())
    return {name: tensors[name].detach() for name in names if name not in missing}


def in_encoder(name: str, classifier: Any) -> bool:
    return name.startswith(f"{classifier.base_model_prefix}.")


def encoder_weights(classifier: Any) -> list[str]:
    """Return the names of the weights that are pruned: those of the encoder's linear layers.

    Embeddings and their projections are not pruned. Nor is BERT's pooler, which sees only the first token and feeds only the classifier:
    its counterpart in RoBERTa is a part of the classifier, so the same weights are pruned in both.
    """
    return [
        f"{path}.weight"
        for path, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and in_encoder(path, classifier) and "pooler" not in path and "embedding" not in path
    ]


def num_positions(classifier: nn.Module) -> int | None:
    """Return how many tokens the position embeddings allow, or None where there are none. RoBERTa's begin after that of padding."""
    for path, module in classifier.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def _read(model: str, read: Any, **options: Any) -> Any:
    """Return what `read` makes of the folder, or of the name in the hub's local cache, or else on the hub."""
    folder = Path(model).expanduser()
    options["trust_remote_code"] = False  # Otherwise transformers may ask whether to run the checkpoint's own code.
    with quiet():
        if folder.is_dir():
            try:
                return read(str(folder), **options)
            except Exception as error:  # Every library that reads a part of it has its own errors.
                raise ValueError(f"{folder} holds no checkpoint that transformers can read: {reason_of(error).rstrip('.:')}") from error
        if model.startswith(("/", ".", "~")):
            raise ValueError(f"model {model!r} was not found: there is no such folder; save_pretrained of model and tokenizer makes one")
        try:
            return read(model, local_files_only=True, **options)
        except Exception:  # It is not in the cache, or not complete.
            try:
                return read(model, **options)
            except Exception as error:
                raise ValueError(
                    f"model {model!r} was not found: it is no folder, not in the Hugging Face cache of this machine, and the hub did not "
                    f"give it; offline, give the folder of a checkpoint with --tasks.text.model DIR ({reason_of(error).rstrip('.:')})"
                ) from error
