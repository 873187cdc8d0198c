"""Jobs on a Ray cluster of this machine leave the same bytes as on `sequential`, also when workers die."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from swamp.core.job import Job, Numerics
from swamp.core.noise import Noise
from swamp.core.schedules import Schedule
from swamp.engines import ray as engine
from swamp.engines import sequential
from swamp.engines.engine import EngineContext, Progress
from swamp.engines.ray_cluster import RayFailed, load_ray, local_cluster, require_reachable
from swamp.runs.config import Config
from swamp.runs.group import run_together
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.progress import Listener
from swamp.tasks.task import Batch
from swamp.training.train import Diverged
from tests.support.blobs import Blobs
from tests.support.jobs import make_job
from tests.support.memory_store import MemoryStore
from tests.support.processes import children
from tests.support.runs import contents, iterate

Make = Callable[..., Config]
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start one cluster for all tests here, because the engine uses a cluster that it is connected to."""
    folders = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, folders)), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    settings = {"logging_level": "ERROR", "log_to_driver": False, "runtime_env": {"env_vars": env}}
    with local_cluster(load_ray(), num_cpus=2, **settings):
        yield


@dataclass
class Fatal(Blobs):
    """A task whose loss kills its process at every tenth step, at most `deaths` times."""

    deaths: int = 1
    counter: Path = Path()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        steps = len(list(self.counter.glob("step-*")))
        (self.counter / f"step-{steps}").touch()
        if steps % 10 == 9 and len(list(self.counter.glob("death-*"))) < self.deaths:
            (self.counter / f"death-{steps}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)


def trained(task: Blobs, config: engine.Config | None = None, **changes: Any) -> tuple[MemoryStore, list[Progress]]:
    """Train a job of four epochs with three steps, on Ray if a config is given, and return the store and the progress reported."""
    store, heard = MemoryStore(), []
    store.states["start"] = task.init(Noise(0))
    context = EngineContext({task.fingerprint: task}, store, Numerics(), CPU, 0.0)
    built = engine.build(context, config) if config else sequential.build(context, sequential.Config())
    for _ in built.train([make_job(task, **changes)], heard.append):
        pass
    built.close()
    return store, heard


@pytest.mark.slow
@pytest.mark.parametrize("cycles", [1, 2])
def test_runs_side_by_side_give_the_bytes_of_one_process(quick: Make, tmp_path: Path, cycles: int) -> None:
    """Two methods share one engine, and the ticket that both need is trained once."""
    settled = {"engine": "ray", "device": "cpu", "precision": "float32"}
    configs = [quick(method=method, pruning__cycles=cycles, **settled) for method in ("swamp", "imp")]
    runs = prepare([RunRequest(config, tmp_path / "ray" / config.method) for config in configs])
    assert run_together(runs, [Listener(), Listener()]) == [None, None]
    for config in configs:
        list(iterate(quick(method=config.method, pruning__cycles=cycles), tmp_path / "one" / config.method))
        assert contents(tmp_path / "ray" / config.method) == contents(tmp_path / "one" / config.method)


@pytest.mark.slow
def test_jobs_that_come_when_others_end_are_trained_once() -> None:
    task, heard = Blobs(), list[Progress]()
    first, second = (make_job(task, noise=Noise(seed)) for seed in (1, 2))
    store = MemoryStore()
    store.states["start"] = task.init(Noise(0))
    asked = []

    def more() -> list[Job]:
        asked.append(len(store.solutions))
        return [first, second]

    built = engine.build(EngineContext({task.fingerprint: task}, store, Numerics(), CPU, 0.0), engine.Config())
    built.train_streaming([first], heard.append, more)
    assert asked == [1, 2]
    assert [progress.key for progress in heard].count(second.key) == second.num_epochs
    assert len(heard) == first.num_epochs + second.num_epochs


def test_only_the_lost_particle_is_redone_and_from_its_checkpoint(tmp_path: Path) -> None:
    expected, _ = trained(Blobs())
    found, heard = trained(Fatal(deaths=1, counter=tmp_path), engine.Config())
    job = make_job(Blobs())
    for name, tensor in expected.states[job.key].parameters.items():
        assert torch.equal(found.states[job.key].parameters[name], tensor)
    assert len(list(tmp_path.glob("death-*"))) == 1
    assert len(list(tmp_path.glob("step-*"))) == 13  # Nine, the tenth, which was fatal, and the last epoch's three again.
    assert [progress.epoch for progress in heard][-1] == 4
    assert not found.checkpoints


@pytest.mark.slow
def test_a_job_whose_workers_keep_dying_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(RayFailed, match="cycle 3, particle 2 died, and was tried 1 times"):
        trained(Fatal(deaths=9, counter=tmp_path), engine.Config(retries=0), schedule=Schedule(epochs=40))


@pytest.mark.slow
def test_errors_of_workers_are_raised_unchanged() -> None:
    with pytest.raises(Diverged, match="the loss became"):
        trained(Blobs(), engine.Config(), schedule=Schedule(epochs=4, learning_rate=1e30))


@pytest.mark.slow
def test_workers_make_models_in_the_default_type_of_this_process() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        store, _ = trained(Blobs(), engine.Config())
    finally:
        torch.set_default_dtype(torch.float32)
    assert {state.parameters["first.weight"].dtype for state in store.states.values()} == {torch.float64}
    assert len(store.states) == 2  # the start and the solution


@pytest.mark.slow
def test_a_worker_with_other_software_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "software_versions", lambda: {"torch": "0.1", "swamp's code": "x"})  # This does not reach the workers.
    with pytest.raises(ValueError, match=r"a Ray worker differs from this process: torch is '.*' there and '0\.1' here"):
        trained(Blobs(), engine.Config())


def test_a_job_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="it is given 64 CPUs and 0 GPUs, and the most of a node are 2 CPUs, 0 GPUs",
    ):
        trained(Blobs(), engine.Config(cpus=64))


@pytest.mark.slow
def test_a_job_resumes_from_the_checkpoint_of_an_earlier_process() -> None:
    task, job = Blobs(), make_job(Blobs())
    store = MemoryStore()
    store.states["start"] = task.init(Noise(0))
    context = EngineContext({task.fingerprint: task}, store, Numerics(), CPU, 0.0)
    first = sequential.build(context, sequential.Config())

    def stop(progress: Progress) -> None:
        if progress.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(first.train([job], stop))
    heard: list[Progress] = []
    list(engine.build(replace(context), engine.Config()).train([job], heard.append))
    assert [progress.epoch for progress in heard] == [3, 4]  # The checkpoint of the second epoch was the last.
    assert torch.equal(trained(task)[0].states[job.key].parameters["first.weight"], store.states[job.key].parameters["first.weight"])


# -- who can reach the cluster --------------------------------------------------------------------------------------------------------


def listening(pid: int) -> set[str]:
    """Return the addresses at which a process and those that it has started listen, as Linux writes them."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(file)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].split(":")[0])
    return found.union(*(listening(child) for child in children(pid)))


def test_the_cluster_listens_on_loopback_alone() -> None:
    assert listening(os.getpid()) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")


def test_other_users_cannot_reach_the_sockets_of_the_cluster() -> None:
    """Ray makes its folders writable for everybody, so that others could put sockets of their own in their place."""
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    assert [*(session / "sockets").iterdir()]
    outer = session.parents[1]
    assert outer.stat().st_mode & 0o777 == 0o700
    assert outer.stat().st_uid == os.geteuid()


def test_the_token_is_in_the_environment_of_the_cluster_alone() -> None:
    token = os.environ["RAY_AUTH_TOKEN"]
    assert re.fullmatch("[0-9a-f]{64}", token)
    files = [Path(f"/proc/{pid}/cmdline") for pid in [os.getpid(), *children(os.getpid())]]
    assert not [file for file in files if token.encode() in file.read_bytes()]
    assert (Path("/proc/self/environ").stat().st_mode & 0o777) == 0o400


def test_a_driver_with_the_token_is_accepted() -> None:
    require_reachable.__wrapped__(ray.get_runtime_context().gcs_address)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}])
def test_a_driver_without_the_token_is_refused(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    address = ray.get_runtime_context().gcs_address
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"engines.ray.address = '{address}': no Ray cluster answers there"):
        require_reachable.__wrapped__(address)
