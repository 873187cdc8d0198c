from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.schedules import SWA, Schedule
from swamp.core.state import State
from swamp.tasks.metrics import f1
from swamp.tasks.text import Config, TextTask, logits_of
from swamp.training.train import Training
from tests.support.made_up_text import write_checkpoint, write_glue

CPU = torch.device("cpu")
ADAM = Optimizer(name="adam", betas=(0.9, 0.98), eps=1e-6, weight_decay=0.0)
LINEARS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    write_glue(folder)
    write_checkpoint(folder / "bert")
    write_checkpoint(folder / "roberta", "roberta")
    return folder


def make(place: Path, model: str = "bert", **settings: Any) -> TextTask:
    given = {"dataset": "rte", "batch_size": 250, **settings}
    return TextTask(Config(data=str(place), model=str(place / model), **given))


@pytest.fixture(scope="module")
def task(place: Path) -> TextTask:
    return make(place)


def trained(task: TextTask, noise: Noise, epochs: int = 1) -> State:
    schedule = Schedule(epochs=epochs, learning_rate=1e-3, shape="linear")
    job = Job(task.fingerprint, "", Mask.ones(task.prunable), noise, schedule, SWA(start=0.5, entry="continue"), ADAM, Numerics())
    training = Training(task, job, task.init(Noise(0)), CPU)
    while not training.done:
        training.run_epoch()
    return training.finish()


# -- data -------------------------------------------------------------------------------------------------------------------------


def test_batches_are_as_wide_as_they_need_and_hold_the_right_texts(place: Path) -> None:
    task = make(place, dataset="mrpc", batch_size=100)
    plan = task.plan(Noise(0), 0, CPU)
    batches = [task.batch(plan, step) for step in range(task.steps_per_epoch)]
    assert [len(batch["labels"]) for batch in batches] == [100] * 36 + [68]
    assert set(batches[0]) == {"input_ids", "attention_mask", "token_type_ids", "labels"}
    pairs = task.data.splits["train"]
    order = plan.tables["order"].tolist()
    for step in (0, 36):
        for row, index in enumerate(order[100 * step : 100 * step + 5]):
            ids = batches[step]["input_ids"][row][batches[step]["attention_mask"][row].bool()].tolist()
            assert ids == task.tokenizer(pairs.first[index], pairs.second[index])["input_ids"]
            assert batches[step]["labels"][row] == pairs.labels[index]


def test_plans_depend_on_noise_and_epoch_alone(task: TextTask) -> None:
    def order(noise: Noise, epoch: int) -> list[int]:
        return task.plan(noise, epoch, CPU).tables["order"].tolist()

    assert order(Noise(1), 4) == order(Noise(1), 4)
    assert len({tuple(order(noise, epoch)) for noise in (Noise(1), Noise(2)) for epoch in (4, 5)}) == 4


def test_padded_to_the_longest_all_batches_have_one_shape_and_the_task_is_resident(place: Path, task: TextTask) -> None:
    whole = make(place, padding="longest")
    assert (whole.resident, task.resident) == (True, False)
    plan = whole.plan(Noise(0), 0, CPU)
    assert all(len(table) == whole.num_examples for table in plan.tables.values())  # a captured step takes its rows of each
    assert {whole.batch(plan, step)["input_ids"].shape[1] for step in range(whole.steps_per_epoch)} == {16}
    assert int(whole.train.lengths.max()) in range(9, 17)
    part = {name: table[500:750] for name, table in plan.tables.items()}
    alone = whole.batch(type(plan)(part), 0)
    assert all(torch.equal(alone[key], value) for key, value in whole.batch(plan, 2).items())


def test_padding_does_not_change_what_a_network_says(place: Path, task: TextTask) -> None:
    model = task.model().eval()
    rows = torch.arange(20)
    with torch.no_grad():
        narrow, wide = (logits_of(model, task.train.batch(rows, width)) for width in (int(task.train.lengths[:20].max()), 16))
    torch.testing.assert_close(narrow, wide)


def test_training_texts_by_number(task: TextTask) -> None:
    rows = torch.tensor([4, 1])
    batch = task.unaugmented(rows, CPU)
    assert torch.equal(batch["labels"], task.train.labels[rows])
    width = batch["input_ids"].shape[1]
    assert width >= int(task.train.lengths[rows].max())
    assert torch.equal(batch["input_ids"], task.train.inputs["input_ids"][rows, :width])
    batch = task.unaugmented(torch.arange(task.size("test")), CPU, "test")
    logits, labels = task.predict(model := task.model(), "test")
    assert torch.equal(batch["labels"], labels)
    with torch.no_grad():
        torch.testing.assert_close(logits_of(model, batch), logits)


def test_long_texts_are_cut_where_the_model_or_the_setting_ends(place: Path) -> None:
    def longest(model: str, **settings: Any) -> tuple[int, int]:
        task = make(place, model, **settings)
        task.data.splits["train"].first[0] = " ".join(["word1"] * 100)  # type: ignore[index]
        task.loss(task.model(), task.train.batch(torch.tensor([0]), task.max_length))
        return task.max_length, int(task.train.lengths.max())

    assert longest("bert") == (40, 40)
    assert longest("roberta") == (40, 40)  # of 42 positions, two stand before the first token's
    assert longest("bert", max_length=20) == (20, 20)


# -- model ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_what_is_pruned(place: Path, kind: str) -> None:
    expected = [f"{kind}.encoder.layer.{layer}.{name}.weight" for layer in (0, 1) for name in LINEARS]
    assert list(make(place, kind).prunable) == expected
    assert list(make(place, kind, exclude=("*.intermediate.*",)).prunable) == [n for n in expected if "intermediate" not in n]
    everything = list(make(place, kind, prunable=("linear",)).prunable)
    head = {"bert": ["bert.pooler.dense.weight", "classifier.weight"], "roberta": ["classifier.dense.weight", "classifier.out_proj.weight"]}
    assert everything == expected + head[kind]
    assert list(make(place, kind, prunable=("linear",), exclude=("encoder",)).prunable) == head[kind]


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_init_is_the_checkpoint_under_a_classifier_of_the_noise(place: Path, kind: str) -> None:
    from transformers import AutoModel

    task = make(place, kind)
    state, random_state = torch.get_rng_state(), task.init(Noise(1))
    one, other = random_state.parameters, task.init(Noise(2)).parameters
    assert torch.equal(state, torch.get_rng_state())
    encoder = dict(AutoModel.from_pretrained(place / kind).named_parameters())
    for name, tensor in one.items():
        if name.startswith("classifier"):
            assert torch.equal(tensor, other[name]) == name.endswith("bias")  # biases begin at 0
        else:
            assert torch.equal(tensor, encoder[name.removeprefix(f"{kind}.")])
    assert task.init(Noise(1)).digest() == random_state.digest()
    random_state.into(task.model())


def test_a_classifier_in_the_checkpoint_is_not_taken(place: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "two", classifier=2)
    write_checkpoint(tmp_path / "three", classifier=3)
    inits = [TextTask(Config(dataset="rte", data=str(place), model=str(tmp_path / name))).init(Noise(5)) for name in ("two", "three")]
    heads = [init.parameters["classifier.weight"] for init in inits]
    assert torch.equal(*heads)
    assert heads[0].shape == (2, 16)


def test_cost_is_that_of_a_text_of_mean_length(task: TextTask) -> None:
    mean = round(float(task.train.lengths.double().mean()))
    assert task.macs["bert.encoder.layer.0.intermediate.dense.weight"] == mean * 16 * 32
    assert task.macs["classifier.weight"] == 2 * 16


def test_the_fingerprint_sees_settings_data_weights_tokens_and_network(place: Path, task: TextTask, tmp_path: Path) -> None:
    def altered(name: str, **settings: Any) -> str:
        return TextTask(Config(dataset="rte", batch_size=250, data=str(place), model=str(tmp_path / name), **settings)).fingerprint

    shutil.copytree(place / "bert", tmp_path / "moved")
    assert altered("moved") == task.fingerprint == make(place).fingerprint
    write_checkpoint(tmp_path / "weights", seed=1)
    write_checkpoint(tmp_path / "dropout", hidden_dropout_prob=0.2)
    shutil.copytree(place / "bert", tmp_path / "tokens")
    vocabulary = tmp_path / "tokens" / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text().replace('"word3"', '"worda"').replace('"word4"', '"word3"').replace('"worda"', '"word4"'))
    others = [altered("weights"), altered("dropout"), altered("tokens"), altered("moved", window=1), altered("moved", max_length=16)]
    others += [altered("moved", validation=10), altered("moved", padding="longest")]
    assert len({task.fingerprint, *others}) == 8
    mrpc = {make(place, dataset="mrpc", test_sets=sets).fingerprint for sets in ((), ("mrpc-test",))}
    assert len(mrpc | {task.fingerprint}) == 3


# -- training and testing ---------------------------------------------------------------------------------------------------------


def test_dropout_is_part_of_the_noise(task: TextTask) -> None:
    """Two epochs; the second particle differs in draws inside the model, too."""
    one, again, other = (trained(task, Noise(seed).fold("particle", 0)).digest() for seed in (0, 0, 1))
    assert one == again != other
    model = task.model().train()
    task.init(Noise(0)).into(model)
    batch = task.batch(task.plan(Noise(0), 0, CPU), 0)
    losses = []
    for seed in (1, 1, 2):
        torch.default_generator.manual_seed(seed)
        losses.append(task.loss(model, batch).item())
    assert losses[0] == losses[1] != losses[2]


def test_a_training_goes_on_from_its_checkpoint_with_the_same_bits(task: TextTask) -> None:
    schedule = Schedule(epochs=3, learning_rate=1e-3, shape="linear")
    job = Job(task.fingerprint, "", Mask.ones(task.prunable), Noise(0), schedule, SWA(start=0.5, entry="continue"), ADAM, Numerics())
    start = task.init(Noise(0))
    whole, first, second = (Training(task, job, start, CPU) for _ in range(3))
    for training in (whole, whole, whole, first, first):
        training.run_epoch()
    second.restore(first.checkpoint())
    second.run_epoch()
    assert second.finish().digest() == whole.finish().digest()


def test_evaluation_is_that_of_the_examples_in_their_own_order(place: Path) -> None:
    task = make(place, dataset="mrpc", test_sets=("mrpc-test",))
    model = task.model()
    found = task.evaluate(model, "test")
    assert not model.training
    assert task.metric == "f1"
    assert {key for key in found if "." not in key} == {"accuracy", "nll", "calibrated_nll", "ece", "f1"}
    assert {key.partition(".")[2] for key in found if "." in key} == {key for key in found if "." not in key}
    test = task.encoded("test", CPU)
    with torch.no_grad():
        logits = logits_of(model, test.batch(torch.arange(408), 40))
    assert found["nll"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits.double(), test.labels)))
    assert found["f1"] == pytest.approx(f1_score(test.labels, logits.argmax(1)))
    assert found["mrpc-test.f1"] == task.evaluate(model, "mrpc-test")["f1"]
    assert "f1" not in make(place).evaluate(model, "test")


def test_f1_by_hand() -> None:
    """Two of three positives found, one false alarm: precision 2/3, recall 2/3. None anywhere: 0, not a division by zero."""
    predicted, labels = torch.tensor([1, 1, 0, 1, 0]), torch.tensor([1, 1, 1, 0, 0])
    assert f1(torch.nn.functional.one_hot(predicted, 2).float(), labels) == pytest.approx(2 / 3)
    assert f1(torch.tensor([[1.0, 0.0]]), torch.tensor([0])) == 0.0


def test_a_task_travels_without_its_data(task: TextTask) -> None:
    _ = task.train
    sent = pickle.dumps(task)
    assert len(sent) < 2000
    assert pickle.loads(sent).fingerprint == task.fingerprint


# -- what may be wrong ------------------------------------------------------------------------------------------------------------


def test_unknown_names(place: Path) -> None:
    with pytest.raises(ValueError, match="unknown data set 'mprc'; did you mean 'mrpc'"):
        make(place, dataset="mprc")
    with pytest.raises(ValueError, match="unknown split 'mrpc-tst' of this data set; did you mean 'mrpc-test'"):
        _ = make(place, dataset="mrpc", test_sets=("mrpc-tst",)).data
    with pytest.raises(ValueError, match="prunable pattern 'encodr' matches no parameter"):
        _ = make(place, prunable=("encodr",)).prunable
