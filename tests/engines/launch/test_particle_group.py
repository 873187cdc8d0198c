"""Ranks that share a particle train what their leader says, if that was announced, from the checkpoint that it has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.engines.engine import EngineContext
from swamp.engines.launch import particle_group
from swamp.engines.launch.mesh import Mesh
from swamp.engines.launch.messages import AnyMessage, BadMessage, GroupTurn, JobTrained
from swamp.engines.launch.particle_group import ParticleGroup
from swamp.engines.launch.ranks import ConnectionLost, Rank
from swamp.training.train import Checkpoint
from tests.support.blobs import Blobs
from tests.support.jobs import make_job
from tests.support.memory_store import MemoryStore

JOBS = [make_job(Blobs(), noise=Noise(0).fold("particle", index)) for index in range(3)]


def group_of(rank: int, monkeypatch: pytest.MonkeyPatch, **mesh: Any) -> ParticleGroup:
    """Return the group of a rank, two of which train a particle, with a mesh that has these methods."""
    monkeypatch.setattr(particle_group.dist, "init_process_group", lambda *names, **settings: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(particle_group, "PrefixStore", lambda prefix, store: None)
    monkeypatch.setattr(particle_group, "VISIBILITY_TIMEOUT", 0.1)
    found = SimpleNamespace(rank=Rank(rank, 4, 0, "", 0, True), timeout=1.0, store=None, is_over=False, **mesh)
    context = EngineContext({}, MemoryStore(), Numerics(), torch.device("cpu"), 0.0)
    return ParticleGroup(context, cast(Mesh, found), 2, synced=True)


def test_the_leader_takes_jobs_and_tells_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    told, numbers = [], iter([2, 0, 3])
    leader = group_of(2, monkeypatch, next_number=lambda: next(numbers), send_to_group=lambda *message: told.append(message))
    checkpoint = Checkpoint({}, 5, 0, [])
    leader.context.store.write_checkpoint(JOBS[0].key, checkpoint)
    assert [*leader.take(JOBS)] == [(JOBS[2], None), (JOBS[0], checkpoint)]
    assert told == [(1, GroupTurn(JOBS[2].key)), (1, GroupTurn(JOBS[0].key, 5)), (1, GroupTurn(None))]


@pytest.mark.parametrize("number", [-1, 3, 2**62])
def test_a_number_that_no_job_has_is_none(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [*group_of(2, monkeypatch, next_number=lambda: number, send_to_group=lambda *message: None).take(JOBS)]


def test_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[AnyMessage | None] = [GroupTurn(JOBS[1].key), GroupTurn(JOBS[0].key, 5), GroupTurn(None)]
    follower = group_of(3, monkeypatch, next_of_group=lambda group: turns.pop(0) if group == 1 else None)
    checkpoint = Checkpoint({}, 5, 0, [])
    follower.context.store.write_checkpoint(JOBS[0].key, checkpoint)
    assert [*follower.take(JOBS)] == [(JOBS[1], None), (JOBS[0], checkpoint)]
    assert not turns


@pytest.mark.parametrize(
    ("turn", "kind", "text"),
    [
        (GroupTurn("0" * 40), BadMessage, f"took the job {'0' * 40}, which was not announced"),
        (JobTrained(JOBS[0].key), BadMessage, "sent a JobTrained where a job was expected"),
        (GroupTurn(JOBS[0].key, 7), ConnectionLost, "rank 3 cannot see the checkpoint from which particle 0 resumes at epoch 7"),
    ],
)
def test_what_no_leader_says_is_one_sentence(turn: AnyMessage, kind: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = group_of(3, monkeypatch, next_of_group=lambda group: turn)
    follower.context.store.write_checkpoint(JOBS[0].key, Checkpoint({}, 5, 0, []))
    with pytest.raises(kind, match=text):
        next(follower.take(JOBS))


def test_the_end_of_the_run_is_the_end_of_following(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [*group_of(3, monkeypatch, next_of_group=lambda group: None).take(JOBS)]
