from __future__ import annotations

import json

import pytest

from swamp import cli
from swamp.runs.bench import bench, copy_bandwidth, measure_machine, numbers_moved, variants
from swamp.runs.config import build_config, engine_modules, resolve, resolve_device
from tests.training.blobs import Blobs


def test_the_least_traffic_is_counted_by_layers_with_weights() -> None:
    # first 4 → 8, BatchNorm 8 → 8, last 8 → 2, for one example; the model's own parameter, which no layer uses, moves input and output
    assert numbers_moved(Blobs()) == 3 * ((4 + 8) + (8 + 8) + (8 + 2) + (4 + 2))


def test_a_copy_has_a_speed() -> None:
    assert copy_bandwidth(resolve_device("cpu")) > 1e8


def test_engines_are_timed() -> None:
    config = resolve(build_config("digits", {"device": "cpu", "tasks.image.batch_size": 256}))
    assert {name for name, _ in variants(config)} <= set(engine_modules())
    machine = measure_machine(config)
    timings = list(bench(config, machine, [("sequential", {})], [1, 4]))
    assert [timing.particles for timing in timings] == [1]  # sequential trains no four at once
    (timing,) = timings
    assert timing.seconds == timing.seconds_each > 0
    assert 0 < timing.utilisation < 1


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--device=cpu", "--tasks.image.batch_size=256", "--engines.processes.workers=1", "--particles=1"]
    cli.main(["bench", "digits", *settings, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [timing["engine"] for timing in found["timings"]] == ["sequential", "processes"]
    assert found["machine"]["bandwidth"] > 0


def test_counts_are_positive_numbers() -> None:
    with pytest.raises(ValueError, match="--particles 0,4: expected positive whole numbers"):
        cli.parse_counts("--particles", "0,4")
