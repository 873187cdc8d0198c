"""The task of classifying sentence pairs with a pretrained encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta, Struct
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.cost import macs_per_weight
from swamp.core.keys import digest, key_of
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks import pretrained
from swamp.tasks.classification import ClassificationTask
from swamp.tasks.datasets import text_sets
from swamp.tasks.datasets.dataset import BatchSize, DataFolder, LimitExamples, Pairs, ValidationSeed, ValidationSize
from swamp.tasks.metrics import F1, ClassificationMetric
from swamp.tasks.prunable import prunable_weights
from swamp.tasks.task import EpochPlan, seeded_state

name = "text"
operational = ("data",)  # settings that do not change results
EVALUATION_BATCH = 64
# There are few widths, so that a device sees few shapes.
WIDTHS = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
MULTIPLE = 8  # Attention kernels are faster if widths are multiples of it.
ENCODER = "encoder"
# The fields of a checkpoint's configuration that do not describe the network.
NOT_OF_THE_NETWORK = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "id2label", "label2id")


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sentence pairs and a pretrained encoder."""

    dataset: Annotated[str, Meta(description="Name of the data set, such as mrpc or rte.")] = "mrpc"
    data: DataFolder = ""
    model: Annotated[
        str, Meta(min_length=1, description="Folder of a checkpoint for AutoModelForSequenceClassification, or its name on the hub.")
    ] = "roberta-base"
    batch_size: BatchSize = 16
    max_length: Annotated[
        int, Meta(ge=16, le=WIDTHS[-1], description="Tokens at which a pair is cut off; the model's own limit if that is lower.")
    ] = 512
    padding: Annotated[
        Literal["bucket", "longest"],
        Meta(
            description="bucket: pad each batch to one of a few widths. longest: pad all texts to the longest; engine graphed needs that."
        ),
    ] = "bucket"
    window: Annotated[
        int,
        Meta(
            ge=1, le=1_000_000, description="padding = bucket: texts are sorted by width within runs of this many batches; 1 does not sort."
        ),
    ] = 16
    validation: ValidationSize = 0
    validation_seed: ValidationSeed = 0
    limit_examples: LimitExamples = 0
    test_sets: Annotated[tuple[str, ...], Meta(description="Further test sets to report: mrpc-test.")] = ()
    prunable: Annotated[
        tuple[str, ...],
        Meta(min_length=1, description="What is pruned: encoder (its linear layers), module kinds (conv, linear) and name patterns."),
    ] = (ENCODER,)
    exclude: Annotated[
        tuple[str, ...], Meta(description="Exceptions from prunable: module kinds and name patterns that are not pruned.")
    ] = ()


class TextTask(ClassificationTask):
    """See `Task`."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, text_sets())
        pretrained.transformers()
        self._encoded: dict[tuple[str, torch.device], Encoded] = {}

    # -- the data -----------------------------------------------------------------------------------------------------------------

    @cached_property
    def tokenizer(self) -> Any:
        return pretrained.read_tokenizer(self.config.model)

    @cached_property
    def max_length(self) -> int:
        limits = (self.config.max_length, pretrained.num_positions(self.model()), self.tokenizer.model_max_length)
        return int(min(limit for limit in limits if limit is not None))

    def encoded(self, split: str, device: torch.device) -> Encoded:
        """Return the split on the device. It is tokenised once and copied to each device once."""
        self.data.check_split(split)
        key, here = (split, device), (split, torch.device("cpu"))
        if here not in self._encoded:
            self._encoded[here] = self._tokenised(self.data.split(split))
        if key not in self._encoded:
            self._encoded[key] = self._encoded[here].to(device)
        return self._encoded[key]

    def _tokenised(self, pairs: Pairs) -> Encoded:
        with pretrained.quiet():
            found = self.tokenizer(
                list(pairs.first),
                list(pairs.second),
                truncation=True,
                max_length=self.max_length,
                padding="longest",
                pad_to_multiple_of=MULTIPLE if self.max_length % MULTIPLE == 0 else None,
                return_tensors="pt",
            )
        inputs = {key: found[key] for key in sorted(found) if key in self.tokenizer.model_input_names}
        return Encoded(inputs, found["attention_mask"].sum(1), pairs.labels)

    @property
    def train(self) -> Encoded:
        return self.encoded("train", torch.device("cpu"))

    @property
    def resident(self) -> bool:
        """Whether a batch needs nothing but its rows of the plan's tables. Of batches of several widths, the host must know the shapes."""
        return self.config.padding == "longest"

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        draw = noise.fold("epoch", epoch).generator()
        if self.resident:
            return EpochPlan({"order": torch.randperm(self.num_examples, generator=draw).to(device)})
        order, widths = epoch_order(self.train.lengths, self.config.batch_size, self.config.window, draw)
        return EpochPlan({"order": order.to(device), "width": widths})  # The host needs the widths.

    def batch(self, plan: EpochPlan, step: int) -> dict[str, Tensor]:
        size = self.config.batch_size
        rows = plan.tables["order"][step * size : (step + 1) * size]
        width = self.max_length if self.resident else int(plan.tables["width"][step])
        return self.encoded("train", rows.device).batch(rows, width)

    def size(self, split: str) -> int:
        return len(self.encoded(split, torch.device("cpu")).lengths)

    def unaugmented(self, rows: Tensor, device: torch.device, split: str = "train") -> dict[str, Tensor]:
        width = int(width_of(self.encoded(split, torch.device("cpu")).lengths[rows.cpu()]).max())
        return self.encoded(split, device).batch(rows.to(device), width)

    # -- the model ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def model_config(self) -> Any:
        return pretrained.read_config(self.config.model, self.num_classes)

    def new_model(self) -> nn.Module:
        return pretrained.new_classifier(self.model_config)

    @cached_property
    def encoder(self) -> dict[str, Tensor]:
        with torch.random.fork_rng(devices=[]):  # Weights that the checkpoint lacks are drawn but not used.
            return pretrained.read_encoder(self.config.model, self.model_config)

    def init(self, noise: Noise) -> State:
        """Return the pretrained encoder with a classifier that is drawn from the noise."""
        fresh = seeded_state(self.new_model, noise)
        return State({**fresh.parameters, **self.encoder}, fresh.buffers)

    @cached_property
    def prunable(self) -> Mapping[str, tuple[int, ...]]:
        model = self.model()
        encoder = pretrained.encoder_weights(model)

        def expanded(selectors: tuple[str, ...]) -> list[str]:
            return [each for selector in selectors for each in (encoder if selector == ENCODER else [selector])]

        return prunable_weights(model, expanded(self.config.prunable), expanded(self.config.exclude))

    @cached_property
    def fingerprint(self) -> str:
        """Return a key of the tokens, which stand for data and tokenizer, and of the weights, which stand for the checkpoint."""
        config = self.deciding_settings((*operational, "model"))
        network = {key: value for key, value in self.model_config.to_dict().items() if key not in NOT_OF_THE_NETWORK}
        splits = (*self.data.splits, *self.config.test_sets)
        tokens = {split: self.encoded(split, torch.device("cpu")) for split in splits}
        data = {split: digest({**found.inputs, "labels": found.labels}) for split, found in tokens.items()}
        return key_of("text task", config=config, network=network, encoder=digest(self.encoder), data=data, widths=WIDTHS)

    @cached_property
    def macs(self) -> Mapping[str, int]:
        """The multiply-adds of a training example of mean length, unpadded. Products of attention have no weights and do not count."""
        mean = max(round(float(self.train.lengths.double().mean())), 1)
        longest = self.train.lengths.argmax().reshape(1)
        return macs_per_weight(self.model(), lambda model: self.loss(model, self.train.batch(longest, mean)))

    # -- the loss -----------------------------------------------------------------------------------------------------------------

    @property
    def metric(self) -> str:
        return str(self.data.metric)

    @property
    def further_metrics(self) -> tuple[ClassificationMetric, ...]:
        return (F1,) if self.metric == F1.metric.name else ()

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(logits_of(model, batch), batch["labels"])

    def labels(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["labels"]

    @torch.no_grad()
    def predict(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        model.eval()
        found = self.encoded(split, device := next(model.parameters()).device)
        order = found.lengths.sort(stable=True).indices
        parts = order.split(EVALUATION_BATCH)
        outputs = [logits_of(model, found.batch(part.to(device), int(width_of(found.lengths[part]).max()))) for part in parts]
        return torch.cat(outputs).float().cpu()[order.argsort()], found.labels.cpu()


@dataclass(frozen=True, eq=False)
class Encoded:
    """Texts as tokens, padded on the right to the longest. No batch is wider than that."""

    inputs: Mapping[str, Tensor]  # the model's inputs, each of shape (examples, tokens)
    lengths: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> Encoded:
        return Encoded({key: value.to(device) for key, value in self.inputs.items()}, self.lengths, self.labels.to(device))

    def batch(self, rows: Tensor, width: int) -> dict[str, Tensor]:
        return {key: value[rows, :width] for key, value in self.inputs.items()} | {"labels": self.labels[rows]}


def width_of(lengths: Tensor) -> Tensor:
    """Return the width that a text of each length is padded to.

    >>> width_of(torch.tensor([1, 32, 33, 500])).tolist()
    [32, 32, 64, 512]
    """
    widths = torch.tensor(WIDTHS)
    return widths[torch.bucketize(lengths, widths)]


def epoch_order(lengths: Tensor, batch_size: int, window: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return an epoch's order of examples, and the width of each of its batches.

    Examples are shuffled. Within each run of `window` batches they are sorted by width, so that a batch holds texts of about one length
    and little padding; then the batches are shuffled. A last, smaller batch stays last and is not sorted. With a window of 1, batches are
    drawn at random, and each is as wide as its longest text needs.
    """
    order = torch.randperm(len(lengths), generator=draw)
    whole = order[: len(order) // batch_size * batch_size]
    widths = width_of(lengths)
    runs = [run[widths[run].sort(stable=True).indices] for run in whole.split(window * batch_size)]
    batches = torch.cat([*runs, whole[:0]]).view(-1, batch_size)
    batches = batches[torch.randperm(len(batches), generator=draw)]
    order = torch.cat([batches.reshape(-1), order[len(whole) :]])
    return order, torch.stack([widths[batch].max() for batch in order.split(batch_size)])


def logits_of(model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    logits: Tensor = model(**{key: value for key, value in batch.items() if key != "labels"}).logits
    return logits


def build(config: Config) -> TextTask:
    return TextTask(config)
