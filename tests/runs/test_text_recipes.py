"""The built-in text recipes say what the paper says."""

from __future__ import annotations

import pytest

from swamp.core.pruning import rounded_share
from swamp.core.schedules import learning_rates
from swamp.runs.config import build_config
from swamp.runs.recipes import header_of

NAMES = ["mrpc-roberta", "rte-roberta", "mrpc-minilm", "rte-minilm"]


@pytest.mark.parametrize("name", NAMES)
def test_settings(name: str) -> None:
    config = build_config(name)
    task, (dataset, model) = config.selected("task"), name.split("-")
    small = model == "minilm"
    assert (config.task, config.method, config.recipe) == ("text", "swamp", name)
    assert (task.dataset, task.batch_size, task.max_length, task.prunable) == (dataset, 16, 512, ("encoder",))
    assert task.model == ("sentence-transformers/all-MiniLM-L6-v2" if small else "roberta-base")
    adam = config.optimizer
    assert (adam.name, adam.betas, adam.eps, adam.weight_decay, adam.clip_norm) == ("adam", (0.9, 0.98), 1e-6, 0.0, 0.0)
    assert (config.ticket.epochs, config.ticket.shape, config.cycle.epochs, config.cycle.shape) == (5, "constant", 10, "linear")
    assert config.ticket.learning_rate == config.cycle.learning_rate == (5e-5 if small else 1e-5)
    assert config.cycle.warmup == 0.0
    assert (config.pruning.cycles, config.pruning.prune_fraction, config.pruning.rewind) == ((5, 0.2) if small else (9, 0.1)) + ("weights",)
    assert config.selected("method").particles == (4 if small else 8)


def test_the_decay_goes_on_while_the_last_half_is_averaged() -> None:
    config = build_config("mrpc-roberta")
    assert config.swa.start_epoch(config.cycle.epochs) == 5
    rates = learning_rates(config.cycle, 230, config.swa)
    assert rates == learning_rates(config.cycle, 230)
    assert rates[0] == 1e-5
    assert rates[1150] == pytest.approx(0.5e-5)
    assert 0 < rates[-1] < 1e-8


def test_the_papers_sparsities_are_cycles_5_7_and_9() -> None:
    pruning = build_config("rte-roberta").pruning
    total = 84_934_656
    assert [round(100 * (1 - rounded_share(total, pruning.density(cycle)) / total), 2) for cycle in (0, 5, 7, 9)] == [
        0.0,
        40.95,
        52.17,
        61.26,
    ]


@pytest.mark.parametrize("name", NAMES)
def test_headers_have_description_command_and_cost(name: str) -> None:
    header = header_of(name)
    assert header.splitlines()[0].endswith(".")
    assert f"swamp run {name} --data DIR" in header
    assert "Cost: " in header
    assert "DIR holds" in header
    assert "swamp[text]" in header or "extra `text`" in header.replace("\n# ", " ")
