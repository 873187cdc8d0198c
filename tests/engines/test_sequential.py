"""Compiled steps of the engine `sequential`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from swamp.core.job import Numerics
from swamp.engines import sequential
from swamp.runs.config import build_config, resolve
from tests.support.blobs import Blobs
from tests.support.trainings import distance, make_engine_context, make_jobs, start_of, trained


@pytest.mark.slow
def test_compiled_steps_compute_the_same_but_for_rounding() -> None:
    task, device = Blobs(dropout=0.5, num_examples=8), torch.device("cpu")  # Full batches have one shape to compile.
    plain = make_jobs(task)[:2]
    compiled = [replace(job, numerics=Numerics(compile=True)) for job in plain]
    expected, found, again = (
        trained(sequential.build(make_engine_context(task, device), sequential.Config()), jobs) for jobs in (plain, compiled, compiled)
    )
    assert [state.digest() for state in found] == [state.digest() for state in again]
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, start_of(task, plain)) < 1e-3  # The distance is about 3e-7.
    assert distance(expected[0], expected[1], start_of(task, plain)) > 0.1


def test_compiled_trainings_have_keys_of_their_own() -> None:
    plain, compiled = (resolve(build_config("digits", {"device": "cpu", "compile": choice})).numerics for choice in (False, True))
    assert plain == Numerics()
    job = make_jobs(Blobs())[0]
    assert replace(job, numerics=compiled).key != job.key == replace(job, numerics=plain).key


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match="compile = true needs a C\\+\\+ compiler, and there is no g"):
        resolve(build_config("digits", {"device": "cpu", "compile": True}))
