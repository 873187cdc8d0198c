"""Cases over sequences: audio, recurrent networks, and transformers with and without `transformers`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.own_models.case import IMP, Case, accuracy, classes, normal, whole_numbers

TOKENS, LENGTH = 11, 6
ADAMW = {"optimizer": {"name": "adamw", "weight_decay": 0.01}, "cycle.learning_rate": 1e-3, "ticket.learning_rate": 1e-3}


def audio() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 6, 9, stride=4),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Conv1d(6, 6, 3),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


class GPT(nn.Module):
    """One causal block; the embedding is the output layer, too."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 16), nn.Linear(16, width)
        self.head = nn.Linear(width, TOKENS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, 2)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x))


def next_token(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    tokens = batch["tokens"]
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def tied_weights_are_one(found: Any) -> None:
    assert found.model.head.weight is found.model.embedding.weight
    assert list(found.mask.layers).count("embedding.weight") == 1


class Reader(nn.Module):
    """An embedding, a recurrent layer, and a linear layer of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.head = nn.Embedding(TOKENS, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(tokens))[0][:, -1])


class Tagger(nn.Module):
    """A label for each token, read from both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 6)
        self.rnn = nn.GRU(6, 5, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
        self.head = nn.Linear(10, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(tokens))[0])


def tokens_and_tags() -> tuple[Tensor, Tensor]:
    tokens = whole_numbers(TOKENS, LENGTH)
    return tokens, tokens % 4


def tag_accuracy(model: nn.Module, batch: Any) -> float:
    return float((model(batch[0]).argmax(2) == batch[1]).double().mean())


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    settings: dict[str, Any] = {"vocab_size": TOKENS, "max_position_embeddings": LENGTH, "num_labels": 3, "attn_implementation": "eager"}
    return BertForSequenceClassification(BertConfig(**sizes, **settings))


def sentences() -> dict[str, Tensor]:
    ids = whole_numbers(TOKENS, LENGTH)
    lengths = 3 + torch.arange(len(ids)) % 4
    return {"input_ids": ids, "attention_mask": (torch.arange(LENGTH) < lengths[:, None]).long(), "labels": classes()}


def loss_in_output(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(**batch).loss


def sentence_accuracy(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return (model(**batch).logits.argmax(1) == batch["labels"]).double().mean()


def hugging_face_gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def texts_with_labels() -> dict[str, Tensor]:
    ids = whole_numbers(TOKENS, LENGTH)
    return {"input_ids": ids, "labels": ids}


CASES = (
    Case("audio", "Conv1d on waveforms", audio, lambda: (normal(1, 40), classes()), accuracy),
    Case(
        "gpt",
        "GPT with tied embeddings and a causal loss",
        GPT,
        lambda: {"tokens": whole_numbers(TOKENS, LENGTH)},
        lambda model, batch: float(next_token(model, batch)),
        {**ADAMW, "loss": next_token},
        forward=lambda model, batch: model(batch["tokens"]),
        check=tied_weights_are_one,
        pruned=("embedding.weight", "qkv.weight"),
        no_onnx="export to a graph takes networks whose input is one tensor",
    ),
    Case(
        "lstm",
        "LSTM classifier",
        Reader,
        lambda: (whole_numbers(TOKENS, LENGTH), classes()),
        accuracy,
        pruned=("rnn.weight_ih_l0", "rnn.weight_hh_l0", "head.weight"),
    ),
    Case(
        "gru_tagger",
        "bidirectional GRU, a label for each token",
        Tagger,
        tokens_and_tags,
        tag_accuracy,
        IMP,
        pruned=("rnn.weight_ih_l1", "rnn.weight_hh_l0_reverse"),
    ),
    Case(
        "bert",
        "BERT from a config of `transformers`",
        bert,
        sentences,
        lambda model, batch: float(sentence_accuracy(model, batch)),
        {**IMP, **ADAMW, "loss": loss_in_output, "metric": sentence_accuracy},
        forward=lambda model, batch: model(**batch).logits,
        no_onnx="export to a graph takes networks whose input is one tensor",
    ),
    Case(
        "gpt2",
        "GPT-2 of `transformers`, whose loss is in its output",
        hugging_face_gpt2,
        texts_with_labels,
        lambda model, batch: float(loss_in_output(model, batch)),
        {**IMP, **ADAMW},
        forward=lambda model, batch: model(**batch).logits,
        pruned=("transformer.h.0.attn.c_attn.weight", "transformer.h.0.mlp.c_fc.weight"),  # a Conv1D of transformers, not an nn.Linear
        no_onnx="export to a graph takes networks whose input is one tensor",
    ),
)
