"""swamp bench-inference: how fast exported networks answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def bench_inference(
    *files: Annotated[Path, Parameter(name="FILE", help="Files of swamp export: sparse, safetensors or .onnx.")],
    data: str | None = None,
    task: str | None = None,
    threads: int = 1,
    rounds: int = 7,
) -> None:
    """Latency and throughput of exported networks on this machine's CPU, in torch and in onnxruntime, relative to the dense network.

    All files must hold networks of one task. Zeros are computed like any other number, except where channels were left out.

    Parameters
    ----------
    data
        Folder that holds your data sets.
    task
        module:function that makes the task of networks that a Python script found.
    threads
        CPU threads.
    rounds
        How often each is measured; the fastest counts.
    """
    from swamp.export.inference import measure, open_contenders, read_about
    from swamp.report.tables import inference_table
    from swamp.runs.config import build_config
    from swamp.runs.runner import open_task
    from swamp.tasks import custom
    from swamp.terminal import print_table

    if not files:
        raise ValueError("bench-inference needs at least one file")
    if threads < 1 or rounds < 1:
        raise ValueError("--threads and --rounds are 1 at least")
    abouts = [read_about(path) for path in files]
    if any((one["task"], one["settings"]) != (abouts[0]["task"], abouts[0]["settings"]) for one in abouts):
        raise ValueError("the files hold networks of different tasks; measure one task at a time")
    if task:
        opened = custom.build(custom.Config(factory=task))
    else:
        name = abouts[0]["task"]
        settings = {"task": name, f"tasks.{name}": abouts[0]["settings"], **({"data": data} if data else {})}
        opened = open_task(build_config("digits", settings))
    contenders = [one for path in files for one in open_contenders(path, opened, threads)]
    print_table(inference_table(measure(contenders, opened, (1, 64), rounds, threads), opened.metric, threads))
