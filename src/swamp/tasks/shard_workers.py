"""Worker processes that make shards of prepared images.

Each worker is connected to this process by a pipe, and gets one shard at a time. A worker that dies is replaced, and its shard is made
again; one that kills its worker every time is an error that names it. Workers end with this process, however it ends.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Self

import torch

from swamp.tasks.preparing import ImageReport, PreparationFailed, ShardJob, make_shard
from swamp.tasks.streaming import follow_parent, no_main_module

MOST_DEATHS = 3  # of workers at one shard

WorkerMessage = int | str | BaseException  # images that are done, the file of a shard that is done, or why it could not be made


@dataclass
class ShardWorker:
    """A worker process, the shard that it makes, and how many of its images are done."""

    process: ForkServerProcess
    connection: Connection
    job: ShardJob
    num_done: int = 0

    @classmethod
    def start(cls, job: ShardJob) -> Self:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # A worker then starts in milliseconds.
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs,), daemon=True)
        with no_main_module(), interrupts_held_back():
            process.start()
        theirs.close()
        worker = cls(process, ours, job)
        worker.make(job)
        return worker

    def make(self, job: ShardJob) -> None:
        self.job, self.num_done = job, 0
        with suppress(OSError):  # A worker that has just died is noticed when its pipe is read.
            self.connection.send(job)

    def next_message(self) -> WorkerMessage | None:
        """Return what the worker says; None if it has died."""
        try:
            message: WorkerMessage = self.connection.recv()
        except (EOFError, OSError):
            return None
        return message


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C back while a worker is started. The server that is started with the first worker inherits this, and all workers from it:
    otherwise one that has just begun, and does not ignore Ctrl-C yet, would end with a traceback."""
    resource_tracker.ensure_running()  # It is started with the server, and would lift what holds back.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def make_shards(jobs: Sequence[ShardJob], num_workers: int, report: ImageReport) -> None:
    """Make shards, in this process if there is to be one worker. What was done is kept, whatever error comes."""
    if num_workers == 1:
        for job in jobs:
            make_shard(job, report)
        return
    waiting, deaths = deque(jobs), Counter[str]()
    workers: dict[Connection, ShardWorker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < num_workers:
                worker = ShardWorker.start(waiting.popleft())
                workers[worker.connection] = worker
            for connection in wait(list(workers)):
                worker = workers[connection]  # type: ignore[index]
                message = worker.next_message()
                if isinstance(message, BaseException):
                    raise message
                if isinstance(message, int):
                    worker.num_done += message
                    report(message)
                elif message is not None and waiting:
                    worker.make(waiting.popleft())
                else:
                    del workers[worker.connection]
                    worker.connection.close()
                    if message is None:
                        report(-worker.num_done)
                        deaths[worker.job.file] += 1
                        require_few(deaths[worker.job.file], worker.job)
                        waiting.appendleft(worker.job)
    finally:
        for worker in workers.values():
            worker.process.kill()
            worker.connection.close()
            worker.process.join()


def require_few(num_deaths: int, job: ShardJob) -> None:
    if num_deaths == MOST_DEATHS:
        raise PreparationFailed(
            f"{MOST_DEATHS} processes died while they prepared {job.file} ({job.names[0]} to {job.names[-1]} in {job.root}); "
            "what is done is kept: if memory was short, run again with fewer --workers"
        )


def work(connection: Connection) -> None:
    """Make the shards that come through the pipe, until it is closed."""
    follow_parent(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # At Ctrl-C the parent ends this process.
    torch.set_num_threads(1)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            make_shard(job, connection.send)
            connection.send(job.file)
        except (OSError, ValueError, MemoryError) as error:
            connection.send(error)
