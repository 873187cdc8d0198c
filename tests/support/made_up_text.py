"""GLUE's files with made-up sentences, and checkpoints small enough to train in a test."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.tasks.datasets.glue import MRPC, RTE, GlueFormat

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [f"word{number}" for number in range(20)]
SPECIAL = {"bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]"), "roberta": ("<s>", "<pad>", "</s>", "<unk>")}


def table_text(table: GlueFormat, rows: list[tuple[str, str, str]]) -> str:
    """Return the text of a file in GLUE's format, with a column that is not used."""
    first, second, label = table.columns
    names = [label, "#1 ID", first, second] if table is MRPC else ["index", first, second, label]
    lines = ["\t".join(names)]
    for number, (one, other, answer) in enumerate(rows):
        fields = {first: one, second: other, label: answer}
        lines.append("\t".join(fields.get(name, str(number)) for name in names))
    return "\n".join(lines) + "\n"


def rows_of(table: GlueFormat, name: str) -> list[tuple[str, str, str]]:
    """Return as many rows of each class as the published file has. The second text's word tells the classes apart."""
    draw = random.Random(name)
    found = [
        (" ".join(draw.sample(WORDS, draw.randint(2, 6))), draw.choice(WORDS[index::2]), table.classes[index])
        for index, count in enumerate(table.counts[name])
        for _ in range(count)
    ]
    draw.shuffle(found)
    return found


def write_glue(folder: Path) -> Path:
    for table in (MRPC, RTE):
        directory = folder / table.official.folders[0]
        directory.mkdir(parents=True)
        for name in table.counts:
            (directory / name).write_text(table_text(table, rows_of(table, name)), encoding="utf-8-sig")
    return folder


def write_tokenizer(folder: Path, kind: str) -> None:
    words = {word: number for number, word in enumerate([*SPECIAL[kind], *WORDS, "word", "##s"])}
    pad, unknown, begin, end = SPECIAL[kind] if kind == "bert" else (SPECIAL[kind][place] for place in (1, 3, 0, 2))
    wordpiece = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token=unknown))
    wordpiece.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    second = 1 if kind == "bert" else 0
    wordpiece.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:{second} {end}:{second}",
        special_tokens=[(t, words[t]) for t in (begin, end)],
    )
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if kind == "bert" else [])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=wordpiece, pad_token=pad, unk_token=unknown, cls_token=begin, sep_token=end, model_input_names=names
    ).save_pretrained(folder)


def write_checkpoint(folder: Path, kind: str = "bert", seed: int = 0, classifier: int = 0, **settings: Any) -> Path:
    """Write a small random encoder as if it were pretrained. `classifier` adds a head with that many classes."""
    small = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32} | settings
    if kind == "bert":
        config = transformers.BertConfig(max_position_embeddings=40, **small)
    else:
        config = transformers.RobertaConfig(max_position_embeddings=42, pad_token_id=1, type_vocab_size=1, **small)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if classifier:
            config.num_labels = classifier
            model = transformers.AutoModelForSequenceClassification.from_config(config)
        else:
            model = transformers.AutoModel.from_config(config)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    write_tokenizer(folder, kind)
    return folder
