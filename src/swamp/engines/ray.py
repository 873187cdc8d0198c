"""The engine `ray` trains jobs as tasks of a Ray cluster, which may exist already or be started on this machine for the run.

What a job needs and its result travel through Ray's object store. Only this process uses the run directory, so the nodes need no common
file system, except for data that are read from files. When a worker or node dies, Ray schedules its task again, which resumes from the
last checkpoint that it had posted.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, cast

import torch
from msgspec import Meta, Struct

from swamp.core.errors import reason_of
from swamp.core.job import Job, Optimizer, Solution
from swamp.core.machine import code_digest, num_cores
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.engines import build_local
from swamp.engines.engine import Engine, EngineContext, Progress, Report, load_solutions
from swamp.engines.ray_cluster import RayFailed, load_ray, local_cluster, require_reachable, unreachable
from swamp.engines.workers import portable, search_path, startup_search_path
from swamp.training.train import Checkpoint

name = "ray"
shares_runs = True  # Jobs of all runs fill the cluster together.
needs_cluster = True
short_names = {"ray-address": "address"}
needs_trust = {"address": "ray-address"}  # Whoever runs a cluster can run code in this process.
POLL_SECONDS = 0.2


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the tasks of a Ray cluster."""

    address: Annotated[
        str, Meta(description="Address of the cluster, such as auto or ray://host:10001; empty starts one on this machine.")
    ] = ""
    cpus: Annotated[float, Meta(ge=0, description="CPUs that a job is given; 0 means as many as its threads.")] = 0.0
    gpus: Annotated[float, Meta(ge=0, description="GPUs that a job is given, on CUDA; 0.5 lets two jobs share one.")] = 1.0
    retries: Annotated[int, Meta(ge=0, description="How often a job whose worker or node died is tried again.")] = 3

    @property
    def starts_cluster(self) -> bool:
        return self.address in ("", "local")


def check(config: Config, optimizer: Optimizer, compiled: bool, device: torch.device) -> None:
    """Raise a ValueError if Ray is not installed, or if no cluster answers at the address."""
    ray = load_ray()
    if config.starts_cluster or ray.is_initialized():
        return
    require_reachable(config.address)


class Ray(Engine):
    """Trains each job as a task of a Ray cluster."""

    def __init__(self, context: EngineContext, config: Config) -> None:
        self.ray = load_ray()
        super().__init__(context, config)
        self.cpus = config.cpus or context.numerics.threads
        self.gpus = config.gpus if context.device.type == "cuda" else 0.0
        self.connection = ExitStack()  # the connection to the cluster, if this engine made it

    @cached_property
    def num_parallel(self) -> int:
        self._connect()
        asked = {"CPU": self.cpus, "GPU": self.gpus}
        nodes: list[Mapping[str, float]] = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        num_parallel = sum(int(min(node.get(kind, 0) // amount for kind, amount in asked.items() if amount)) for node in nodes)
        if not num_parallel:
            largest = ", ".join(f"{max(node.get(kind, 0) for node in nodes):g} {kind}s" for kind in asked)
            raise ValueError(
                f"no job fits on a node of the Ray cluster: it is given {self.cpus:g} CPUs and {self.gpus:g} GPUs, and the most of a node "
                f"are {largest}; lower engines.ray.cpus or engines.ray.gpus"
            )
        return num_parallel

    @cached_property
    def board(self) -> Any:
        """Start the actor to which workers post their progress, on the node of this process."""
        here = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(self.ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"max_restarts": -1, "max_task_retries": -1}  # A restart loses only checkpoints.
        return self.ray.remote(MessageBoard).options(num_cpus=0, scheduling_strategy=here, **lasting).remote()

    @cached_property
    def shared_context(self) -> Any:
        """The context without its store, where this process looks for modules, and torch's default type, in which models are made. It is
        put into the object store once for all jobs.

        The context is pickled here, because a worker has to look in further places before it can read a task of the user's own.
        """
        packed = self.ray.cloudpickle.dumps(replace(self.context, store=cast(Any, None)))
        return self.ray.put((packed, search_path(), torch.get_default_dtype()))

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        self.train_streaming(jobs, report, lambda: ())
        yield from load_solutions(self.context.store, jobs)

    def train_streaming(self, jobs: Sequence[Job], report: Report, more: Callable[[], Iterable[Job]]) -> None:
        store, coming = self.context.store, iter(jobs)
        tasks: dict[Any, Job] = {}
        try:
            while True:
                under_way = {job.key for job in tasks.values()}
                missing = {job.key: job for job in coming if job.key not in under_way and store.solution(job.key) is None}
                tasks |= self._submit(list(missing.values())) if missing else {}
                if not tasks:
                    return
                ready, _ = self.ray.wait(list(tasks), timeout=POLL_SECONDS)
                self._read_board(report)
                for task in ready:
                    self._store_result(tasks.pop(task), task)
                coming = iter(more() if ready else ())
        finally:
            for task in tasks:  # Some are left only after an error.
                self.ray.cancel(task, force=True)

    def close(self) -> None:
        self.connection.close()

    def _connect(self) -> None:
        """Connect to the cluster, or start one. If this process is connected to a cluster already, use that one."""
        if self.ray.is_initialized():
            return
        # Ray makes the current directory the first place where workers look for modules, but not for the jobs of its clients.
        job_config = self.ray.job_config.JobConfig(_client_job=True)
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "job_config": job_config}
        if self.config.starts_cluster:
            settings |= {"num_cpus": num_cores(), "runtime_env": {"env_vars": {"PYTHONPATH": startup_search_path()}}}
            self.connection.enter_context(local_cluster(self.ray, **settings))
            return
        try:
            self.ray.init(self.config.address, **settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ValueError(unreachable(self.config.address, reason_of(error))) from None
        self.connection.callback(self.ray.shutdown)

    def _submit(self, jobs: Sequence[Job]) -> dict[Any, Job]:
        assert self.num_parallel  # This connects, and raises an error if no job fits.
        store = self.context.store
        train = self.ray.remote(train_on_worker).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.config.retries)
        starts = {start: self.ray.put(store.load_state(start)) for start in dict.fromkeys(job.start for job in jobs)}
        self.ray.get([self.board.keep.remote(job.key, found) for job in jobs if (found := store.read_checkpoint(job.key))])
        return {train.remote(self.shared_context, job, starts[job.start], self.board, software_versions()): job for job in jobs}

    def _read_board(self, report: Report) -> None:
        try:
            messages = self.ray.get(self.board.take.remote())
        except self.ray.exceptions.RayError as error:
            raise RayFailed(f"the Ray cluster is gone ({reason_of(error)})") from None
        for message in messages:
            if isinstance(message, Progress):
                report(message)
            else:
                self.context.store.write_checkpoint(*message)

    def _store_result(self, job: Job, task: Any) -> None:
        try:
            found = self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:  # It failed before our own code ran, for example because the node lacks a module.
            raise RayFailed(f"{job.label} could not begin on a node of the Ray cluster ({str(error.cause).strip() or error})") from None
        except self.ray.exceptions.RayError as error:
            told = f"the worker of {job.label} died, and was tried {self.config.retries + 1} times ({reason_of(error)})"
            raise RayFailed(told) from None
        if isinstance(found, Exception):
            raise found
        store = self.context.store
        store.save_solution(job.key, found.state, found.history, found.mask)
        store.remove_checkpoint(job.key)
        for record in found.timings:
            store.log_timing(record)
        self.board.forget.remote(job.key)


class MessageBoard:
    """Holds messages of workers until they are read, and the last checkpoint of each job for a worker that has to resume it."""

    def __init__(self) -> None:
        self.messages: list[Progress | tuple[str, Checkpoint]] = []
        self.checkpoints: dict[str, Checkpoint] = {}

    def post(self, progress: Progress) -> None:
        self.messages.append(progress)

    def keep(self, key: str, checkpoint: Checkpoint, is_new: bool = False) -> None:
        self.checkpoints[key] = checkpoint
        if is_new:
            # Only the newest checkpoint of a job is kept.
            self.messages = [message for message in self.messages if isinstance(message, Progress) or message[0] != key]
            self.messages.append((key, checkpoint))

    def latest(self, key: str) -> Checkpoint | None:
        return self.checkpoints.get(key)

    def forget(self, key: str) -> None:
        self.checkpoints.pop(key, None)

    def take(self) -> list[Progress | tuple[str, Checkpoint]]:
        taken, self.messages = self.messages, []
        return taken


class RemoteStore:
    """The store of a worker. It holds the start of the job and the result, which is sent back as this object."""

    def __init__(self, start: State, board: Any) -> None:
        import ray

        self.ray, self.start, self.board = ray, start, board
        self.state = start
        self.history: list[dict[str, Any]] = []
        self.mask: Mask | None = None
        self.timings: list[dict[str, Any]] = []
        self.found: Solution | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"state": self.state, "history": self.history, "mask": self.mask, "timings": self.timings}

    def solution(self, key: str) -> Solution | None:
        return self.found

    def load_state(self, key: str) -> State:
        return self.start

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        self.state, self.history, self.mask = state, list(history), mask
        self.found = Solution(key, tuple(history), lambda: state, mask.digest if mask else None)
        return self.found

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        found: Checkpoint | None = self.ray.get(self.board.latest.remote(key))
        return found

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        self.ray.get(self.board.keep.remote(key, checkpoint, is_new=True))

    def remove_checkpoint(self, key: str) -> None:
        """The board forgets it when the result has arrived."""

    def log_timing(self, record: dict[str, Any]) -> None:
        self.timings.append(record)


def software_versions() -> dict[str, str]:
    """Return the versions that must be the same on every node."""
    return {"torch": str(torch.__version__), "swamp's code": code_digest()}


def train_on_worker(
    shared: tuple[bytes, list[str], torch.dtype], job: Job, start: State, board: Any, versions: Mapping[str, str]
) -> RemoteStore | Exception:
    """Train a job in a worker, and return its result or the error. `versions` are those of the process that runs the method."""
    packed, folders, default_dtype = shared
    torch.set_default_dtype(default_dtype)
    sys.path += [folder for folder in folders if folder not in sys.path]  # after the worker's own, which they cannot replace
    context: EngineContext = pickle.loads(packed)
    try:
        for what, there in software_versions().items():
            if versions[what] != there:
                raise ValueError(f"a Ray worker differs from this process: {what} is {there!r} there and {versions[what]!r} here")
        remote_store = RemoteStore(start, board)
        engine = build_local(replace(context, store=remote_store))
        for _ in engine.train([job], lambda progress: board.post.remote(progress)):
            pass
        return remote_store
    except Exception as error:
        error.add_note(traceback.format_exc())
        return portable(error)


build = Ray
