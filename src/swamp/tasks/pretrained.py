"""Checkpoints of `transformers`: a folder, or a name on the Hugging Face hub.

The package is imported when a text task is first used: it takes a second, and is an extra.
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
    """No progress bars, and no reports of a classifier that is not in the checkpoint: that is how it should be."""
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
    """The checkpoint's configuration, for a classifier of so many classes."""
    return _read(model, transformers().AutoConfig.from_pretrained, num_labels=num_classes)


def read_tokenizer(model: str) -> Any:
    tokenizer = _read(model, transformers().AutoTokenizer.from_pretrained)
    if tokenizer.pad_token is None:
        raise ValueError(f"the tokenizer of model {model!r} has no padding token, so that texts of different lengths cannot share a batch")
    tokenizer.padding_side = "right"  # batches are cut on that side
    return tokenizer


def new_classifier(config: Any) -> nn.Module:
    """The architecture, every weight drawn afresh."""
    classifier: nn.Module = transformers().AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    return classifier


def read_encoder(model: str, config: Any) -> dict[str, Tensor]:
    """The encoder's parameters that the checkpoint holds, by their names in the classifier. A head that it may have is not taken."""
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
    # BERT's pooler is not in every checkpoint; everything else of an encoder is
    if lacking := [name for name in names if name in missing and "pooler" not in name]:
        raise ValueError(f"the checkpoint of model {model!r} lacks weights of its encoder ({', '.join(lacking[:3])} …)")
    tensors = dict(classifier.named_parameters())
    return {name: tensors[name].detach() for name in names if name not in missing}


def in_encoder(name: str, classifier: Any) -> bool:
    return name.startswith(f"{classifier.base_model_prefix}.")


def encoder_weights(classifier: Any) -> list[str]:
    """What is pruned: the weights of the encoder's linear layers.

    Not the embeddings, nor projections of them. Not BERT's pooler: it sees the first token alone and only feeds the classifier, and its
    counterpart in RoBERTa is a part of the classifier; so the same is pruned in both.
    """
    return [
        f"{path}.weight"
        for path, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and in_encoder(path, classifier) and "pooler" not in path and "embedding" not in path
    ]


def num_positions(classifier: nn.Module) -> int | None:
    """How many tokens have a position of their own; None where positions are not embedded. RoBERTa's begin after that of padding."""
    for path, module in classifier.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def _read(model: str, read: Any, **options: Any) -> Any:
    """Whatever `read` makes of the folder, or of the name: from the hub's cache here, else from the hub."""
    folder = Path(model).expanduser()
    options["trust_remote_code"] = False  # without it, transformers may ask whether to run the checkpoint's own
    with quiet():
        if folder.is_dir():
            try:
                return read(str(folder), **options)
            except Exception as error:  # every library that reads a part of it has errors of its own
                raise ValueError(f"{folder} holds no checkpoint that transformers can read: {reason_of(error).rstrip('.:')}") from error
        if model.startswith(("/", ".", "~")):
            raise ValueError(f"model {model!r} was not found: there is no such folder; save_pretrained of model and tokenizer makes one")
        try:
            return read(model, local_files_only=True, **options)
        except Exception:  # not in the cache, or not whole
            try:
                return read(model, **options)
            except Exception as error:
                raise ValueError(
                    f"model {model!r} was not found: it is no folder, not in the Hugging Face cache of this machine, and the hub did not "
                    f"give it; offline, give the folder of a checkpoint with --tasks.text.model DIR ({reason_of(error).rstrip('.:')})"
                ) from error
