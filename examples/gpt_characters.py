"""Fine-tune and prune a pretrained GPT with AdamW.

    python examples/gpt_characters.py [--pretraining-steps 300] [--epochs 2] [--out runs/gpt-characters]

A small GPT reads characters. It learns English from the language reference that ships with Python (`help("if")` shows a page of it),
in a plain training loop. Then swamp removes 60 % of its weights while it fine-tunes them on the pages about classes and functions. The
same lines prune a GPT of your own: a module with its weights, a loss, and rates that suit fine-tuning.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import swamp

LENGTH, WIDTH, HEADS, LAYERS = 48, 48, 4, 2
ALPHABET = " !\"'()*,-./:;=ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_`abcdefghijklmnopqrstuvwxyz0123456789"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(len(ALPHABET), WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(ALPHABET), bias=False)
        self.head.weight = self.embedding.weight  # Tied: the mask of one is the mask of the other, and it counts once.

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens) + self.positions[: tokens.shape[1]])))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Predict every character from those before it. A loss whose first parameter is called model gets the batch as it is."""
    tokens = batch["tokens"]
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def windows(text: str) -> dict[str, Tensor]:
    """Cut a text into pieces of one length, with one character more: each but the first is predicted."""
    tokens = torch.tensor([ALPHABET.index(letter) for letter in " ".join(text.split()) if letter in ALPHABET])
    return {"tokens": tokens.unfold(0, LENGTH + 1, LENGTH).contiguous()}


def pretrained(file: Path, num_steps: int) -> GPT:
    """Return the GPT that knows the language reference; train it on the first call, load it later. Any checkpoint would do here."""
    torch.manual_seed(0)
    model = GPT()
    if file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model
    tokens = windows("\n".join(topics.values()))["tokens"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(num_steps):
        value = loss(model, {"tokens": tokens[torch.randint(len(tokens), (32,))]})
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"pretraining, step {step + 1}: loss {value.item():.2f}")
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), file)
    return model


@torch.no_grad()
def continued(model: nn.Module, text: str, count: int = 60) -> str:
    """Let the model write on. It draws among likely characters; the draws are the same at every call."""
    draws = torch.Generator().manual_seed(0)
    for _ in range(count):
        tokens = torch.tensor([[ALPHABET.index(letter) for letter in text[-LENGTH:]]])
        likely = (2 * model.eval()(tokens)[0, -1]).softmax(0)
        text += ALPHABET[int(torch.multinomial(likely, 1, generator=draws))]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretraining-steps", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each cycle")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt-characters"))
    arguments = parser.parse_args()

    model = pretrained(arguments.out.with_name(arguments.out.name + "-pretrained.pt"), arguments.pretraining_steps)
    train, test = windows(topics["class"] + topics["function"] + topics["customization"]), windows(topics["specialnames"][-6000:])

    found = swamp.prune(
        model,  # A module, not a function: its weights are where everything starts. It is not changed.
        train,
        test,
        loss=loss,
        batch_size=32,
        exclude=["embedding.*"],  # The embedding, and with it the tied output layer, stays dense.
        method="swamp",
        out=arguments.out,
        optimizer={"name": "adamw", "weight_decay": 0.01},
        # Rates for fine-tuning: the pretrained weights are to be kept, not to be drowned. SWAMP's own phase, in which weights are
        # averaged along the way, gets a little less than the cycle.
        ticket={"epochs": 0},
        cycle={"epochs": arguments.epochs, "learning_rate": 1e-3},
        swa={"learning_rate": 5e-4},
        pruning={"cycles": 3, "prune_fraction": 0.26},
        methods={"swamp": {"particles": 2}},
    )

    print("\nsparsity  bits per character")
    for row in found.rows:
        print(f"{row.sparsity:8.1%}  {row.metrics['loss'] / torch.tensor(2.0).log():.3f}")
    print(f"\ndense, before fine-tuning:  {continued(model, 'A class definition ')}")
    print(f"{found.rows[-1].sparsity:.0%} sparse:                 {continued(found.model, 'A class definition ')}")


if __name__ == "__main__":
    main()
