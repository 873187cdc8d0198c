"""The far end of `engines.processes`: reads a workshop, then jobs, from the socket whose number it is given."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection

from swamp.core.job import Job
from swamp.engines.engine import Workshop, train_job


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes the socket
    connection: Connection = Connection(descriptor)
    jobs: queue.Queue[Job] = queue.Queue()
    workshop: Workshop = pickle.loads(connection.recv_bytes())

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
            train_job(workshop, job, send)
            send(None)
        except Exception as error:
            error.add_note(traceback.format_exc())  # where it happened does not travel with it otherwise
            send(error)


if __name__ == "__main__":
    main(int(sys.argv[1]))
