"""The engine `processes` trains several jobs at once, each in a worker process on this machine's CPU.

A worker is a fresh interpreter at the other end of a socket. It lives as long as the socket does: when the parent ends, in whatever way,
the worker reads the end of the file and exits. A worker inherits no other file, so no lock outlives the parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Annotated

import torch
from msgspec import Meta, Struct

from swamp.core.job import Job, Solution
from swamp.core.machine import num_cores
from swamp.engines.engine import Engine, EngineContext, Progress, Report, train_job
from swamp.engines.workers import portable, search_path, startup_search_path
from swamp.tasks.task import Task

name = "processes"
default_for = devices = ("cpu",)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of worker processes on the CPU."""

    workers: Annotated[int, Meta(ge=0, le=1024, description="Particles trained at once; 0 means one for each core.")] = 0
    retries: Annotated[int, Meta(ge=0, le=1000, description="How often a job whose worker died is tried again.")] = 3


def why_not(task: Task) -> str:
    """Say so if the task cannot be pickled, or if workers could not find what a notebook or script defines in itself."""
    try:
        can_be_sent = b"__main__" not in pickle.dumps(task)
    except Exception:  # Pickling fails in as many ways as there are objects.
        can_be_sent = False
    if can_be_sent:
        return ""
    return (
        "this task cannot be sent to worker processes (a part of it is defined in a script or notebook, inside a function or as a lambda)"
    )


class WorkerDied(RuntimeError):
    """A worker ended without an answer, more often than allowed."""


class Processes(Engine):
    """Trains jobs in worker processes. A worker has one job at a time."""

    def __init__(self, context: EngineContext, config: Config) -> None:
        super().__init__(context, config)
        self.workers: list[Worker] = []

    @property
    def num_parallel(self) -> int:
        return self.config.workers or max(num_cores() // self.context.numerics.threads, 1)

    def train(self, jobs: Sequence[Job], report: Report) -> Iterator[Solution]:
        store = self.context.store
        done = {job.key: solution for job in jobs if (solution := store.solution(job.key))}
        waiting = deque(job for job in jobs if job.key not in done)
        deaths: dict[str, int] = {}
        for job in jobs:
            while job.key not in done:
                self._assign(waiting)
                for key in self._receive(waiting, deaths, report):
                    solution = store.solution(key)
                    assert solution is not None
                    done[key] = solution
            yield done[job.key]

    def close(self) -> None:
        for worker in self.workers:
            worker.connection.close()
        for worker in self.workers:
            worker.close()
        self.workers.clear()

    def _assign(self, waiting: deque[Job]) -> None:
        """Give a job to every idle worker, and start workers while there are jobs for them."""
        while waiting:
            idle = [worker for worker in self.workers if worker.job is None]
            if not idle and len(self.workers) < self.num_parallel:
                idle = [Worker(self.context)]
                self.workers += idle
            if not idle:
                return
            idle[0].give(waiting.popleft())

    def _receive(self, waiting: deque[Job], deaths: dict[str, int], report: Report) -> list[str]:
        """Wait for messages of busy workers, and return the keys of jobs that ended."""
        ended = []
        for connection in wait([worker.connection for worker in self.workers if worker.job]):
            worker = next(worker for worker in self.workers if worker.connection is connection)
            assert worker.job is not None
            try:
                message = pickle.loads(worker.connection.recv_bytes())
            except (EOFError, OSError):
                self._replace_dead(worker, waiting, deaths)
                continue
            match message:
                case Progress():
                    report(message)
                case Exception():
                    worker.job = None
                    raise message
                case _:
                    ended.append(worker.job.key)
                    worker.job = None
        return ended

    def _replace_dead(self, worker: Worker, waiting: deque[Job], deaths: dict[str, int]) -> None:
        """Return a dead worker's job to the queue. Another worker resumes it from its checkpoint."""
        job = worker.job
        assert job is not None
        worker.close()
        self.workers.remove(worker)
        deaths[job.key] = deaths.get(job.key, 0) + 1
        if deaths[job.key] > self.config.retries:
            raise WorkerDied(
                f"the worker of {job.label} ended {deaths[job.key]} times without an answer (status {worker.process.returncode})"
            )
        waiting.appendleft(job)


class Worker:
    """A worker process and the connection to it, seen from the parent."""

    def __init__(self, context: EngineContext) -> None:
        ours, theirs = socket.socketpair()
        # With -P, modules come from where this process finds them, and not first from the current directory.
        environment = {**os.environ, "OMP_NUM_THREADS": str(context.numerics.threads), "PYTHONPATH": startup_search_path()}
        command = [sys.executable, "-P", "-m", "swamp.engines.processes", str(theirs.fileno())]
        # The worker has a process group of its own: Ctrl-C is for the parent, which then closes the socket.
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, process_group=0)
        theirs.close()
        self.connection: Connection = Connection(ours.detach())
        self.job: Job | None = None
        self.unsent: list[object] = [search_path(), torch.get_default_dtype(), context]

    def give(self, job: Job) -> None:
        """Send the job. If the worker is dead, the next attempt to receive from it finds that out."""
        self.job = job
        with contextlib.suppress(OSError):
            for message in (*self.unsent, job):
                self.connection.send_bytes(pickle.dumps(message))
            self.unsent = []

    def close(self) -> None:
        self.connection.close()  # The worker reads the end of the file and exits.
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(descriptor: int) -> None:
    """Be the worker: read from this socket how the parent is set up, its context and then jobs, and send progress, results and errors."""
    connection: Connection = Connection(descriptor)
    jobs: queue.Queue[Job] = queue.Queue()
    try:
        sys.path[:] = pickle.loads(connection.recv_bytes())  # The context may need modules of the user's own.
        torch.set_default_dtype(pickle.loads(connection.recv_bytes()))  # Models are made in it.
        context: EngineContext = pickle.loads(connection.recv_bytes())
    except EOFError:
        return  # The parent ended before it sent anything.
    except Exception as error:
        connection.recv_bytes()  # the first job, to which this is the answer
        reason = f"{type(error).__name__}: {error}"
        connection.send_bytes(pickle.dumps(ValueError(f"worker processes cannot load the task ({reason}); choose engine = 'sequential'")))
        return

    # Where the parent has ended, the worker stops at once, even in the middle of a training: either thread may be the first to notice.
    def read() -> None:
        try:
            while True:
                jobs.put(pickle.loads(connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=read, daemon=True).start()

    def send(message: object) -> None:
        content = pickle.dumps(message)
        try:
            connection.send_bytes(content)
        except OSError:
            os._exit(1)

    while True:
        job = jobs.get()
        try:
            if context.store.solution(job.key) is None:  # Another worker may have died after storing it, before saying so.
                train_job(context, job, send)
            send(None)
        except Exception as error:
            error.add_note(traceback.format_exc())  # The traceback does not survive pickling otherwise.
            send(portable(error))


build = Processes

if __name__ == "__main__":
    serve(int(sys.argv[1]))
