"""The far end of `engines.processes`: reads a context, then jobs, from the socket whose number it is given."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from swamp.core.job import Job
from swamp.engines.engine import EngineContext, train_job


def main(descriptor: int) -> None:
    connection: Connection = Connection(descriptor)
    jobs: queue.Queue[Job] = queue.Queue()
    try:
        context: EngineContext = pickle.loads(connection.recv_bytes())
    except EOFError:
        return  # the parent went before it had said anything

    def read() -> None:
        try:
            while True:
                jobs.put(pickle.loads(connection.recv_bytes()))
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone: stop at once, wherever the training is

    threading.Thread(target=read, daemon=True).start()

    def send(message: object) -> None:
        connection.send_bytes(pickle.dumps(message))

    while True:
        job = jobs.get()
        try:
            if context.store.solution(job.key) is None:  # a worker may have died between storing it and saying so
                train_job(context, job, send)
            send(None)
        except Exception as error:
            error.add_note(traceback.format_exc())  # where it happened does not travel with it otherwise
            send(portable(error))


def portable(error: Exception) -> Exception:
    """The error, or one that says the same where it does not survive the journey."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return error


if __name__ == "__main__":
    main(int(sys.argv[1]))
