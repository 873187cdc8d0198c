"""SWAMP around the Trainer of Hugging Face transformers, on a tiny BERT without pretrained weights."""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import swamp
from swamp.adapters.transformers import TransformersCallback

tokens = torch.randint(5, 40, (256, 8), generator=torch.Generator().manual_seed(0))
labels = (tokens[:, 0] > tokens[:, 1]).long()  # The network is to learn which of the first two tokens is greater.
data = [{"input_ids": text, "labels": label} for text, label in zip(tokens, labels, strict=True)]


def model():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=40, max_position_embeddings=8, **sizes))


def train(model, run):
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_strategy": "epoch", "use_cpu": True}
    arguments = TrainingArguments(out, num_train_epochs=6, per_device_train_batch_size=32, learning_rate=3e-3, seed=run.seed, **quiet)
    Trainer(model, arguments, train_dataset=data[:192], callbacks=[TransformersCallback(run)]).train()


def evaluate(model):
    return {"accuracy": (model(tokens[192:]).logits.argmax(1) == labels[192:]).double().mean()}


out = sys.argv[1] if len(sys.argv) > 1 else "runs/own-trainer"
print(found := swamp.prune_with(train, model, evaluate, method="imp", out=out, device="cpu", pruning={"cycles": 2}))
