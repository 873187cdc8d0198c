"""swamp bench-inference: time exported networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import WholeNumber, made_task

group = "Use a network"
usage = "Usage: swamp bench-inference FILE … [OPTIONS]"


def bench_inference(
    *files: Annotated[
        Path, Parameter(name="FILE", help="A file that `swamp export` wrote; docs/export.md says which formats can be measured.")
    ],
    data: str | None = None,
    task: str | None = None,
    threads: WholeNumber = 1,
    rounds: WholeNumber = 7,
) -> None:
    """Measure latency and throughput of exported networks on this machine's CPU, relative to the dense network in torch.

    Each file's network runs in torch and in onnxruntime, which compute with zeros like with any other number, and on the sparse path,
    which leaves them out. All files must hold networks of one task.

    Parameters
    ----------
    data
        Folder that holds your data sets.
    task
        module:function that makes the task of networks that a Python script found.
    threads
        Number of CPU threads.
    rounds
        How often each network is measured; the fastest measurement counts.
    """
    from swamp.export.inference import in_onnxruntime, measure, on_sparse_path, open_network, read_about
    from swamp.report.tables import inference_table
    from swamp.runs.config import build_config, module_of
    from swamp.runs.opening import open_task
    from swamp.terminal import print_line, print_table

    if not files:
        raise ValueError("bench-inference needs at least one file")
    if threads < 1 or rounds < 1:
        raise ValueError("--threads and --rounds must be at least 1")
    abouts = [read_about(path) for path in files]
    if any((one["task"], one["settings"]) != (abouts[0]["task"], abouts[0]["settings"]) for one in abouts):
        raise ValueError("the files hold networks of different tasks; measure one task at a time")
    opened = made_task(task)
    if opened is None:
        name = abouts[0]["task"]
        # A file may not choose paths of this machine or a function that makes the task.
        private = getattr(module_of("task", name), "operational", ())
        said = {key: value for key, value in abouts[0]["settings"].items() if key not in private}
        settings = {"task": name, f"tasks.{name}": said, **({"data": data} if data else {})}
        opened = open_task(build_config("digits", settings))
    networks, skipped = [], []
    for path in files:
        networks.append(found := open_network(path, opened, threads))
        if found.runtime != "torch":
            continue
        for runtime, make in (
            ("onnxruntime", lambda: in_onnxruntime(found, opened, threads)),
            ("the sparse path", lambda path=path: on_sparse_path(found, path, opened, threads)),
        ):
            try:
                networks.append(make())
            except (RuntimeError, ValueError) as error:  # the other runtimes are still measured
                skipped.append(f"{path.name} without {runtime}: {error}")
    print_table(inference_table(measure(networks, opened, (1, 64), rounds, threads), opened.metrics[opened.metric], threads))
    for sentence in skipped:
        print_line(sentence)
