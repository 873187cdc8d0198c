"""`swamp plan`: which layout of a run on several GPUs is finished when, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from swamp.commands.arguments import Flag, RecipeArgument, WholeNumber, parse_numbers, recipe_and_settings

group = "Prepare"
usage = "Usage: swamp plan [RECIPE] [--setting VALUE …] --gpus 8 [OPTIONS]"


def plan(
    *arguments: RecipeArgument,
    gpus: str = "1,8",
    per_host: Annotated[WholeNumber, Parameter(name="--gpus-per-host")] = 8,
    hours: float | None = None,
    data: Path | None = None,
    scale: float | None = None,
    rate: float | None = None,
    shared_rate: float | None = None,
    bandwidth: float = 200.0,
    network: float = 25.0,
    latency: float = 5.0,
    image_kilobytes: float | None = None,
    json: Flag = False,
) -> None:
    """Predict how long a run takes on several GPUs, for each way to share them between particles and batches.

    Each group of GPUs trains one particle at a time, every GPU on its share of each batch (engine distributed, setting
    engines.distributed.data). The times come from steps that are timed here or, with --rate, from speeds that you know; what GPUs
    exchange is computed from the size of the network. Nothing is trained. docs/scaling.md compares predictions with real launches.

    Parameters
    ----------
    arguments
        The recipe, and settings as --name value, as for `swamp run`.
    gpus
        Numbers of GPUs, such as 8 or 1,8,64.
    per_host
        GPUs of a host.
    hours
        Say which layouts are finished within so many hours.
    data
        Folder that holds your data sets. Where one is not there, its published number of images is planned with.
    scale
        Factor of all epoch counts, such as 0.1 for a tenth.
    rate
        Examples a second that a GPU trains alone (as `swamp bench` measures), in place of timing steps here.
    shared_rate
        The same of a GPU that shares its batches with others, whose steps are not compiled. Default: as --rate.
    bandwidth
        GB/s between two GPUs of a host.
    network
        GB/s between hosts.
    latency
        Microseconds of a small message between GPUs.
    image_kilobytes
        What is read from disk for an example, such as 262 for raw images of 256 pixels. Default: what the prepared data say, else nothing.
    json
        Print the predictions as JSON.
    """
    from swamp.report.tables import layout_table
    from swamp.runs.config import build_config, resolve
    from swamp.runs.layouts import Cluster, group_sizes, layouts
    from swamp.runs.plan import make_plan
    from swamp.runs.remarks import plan_remarks
    from swamp.runs.workload import given_paces, measured_paces, planned_task, stored_bytes, work_of
    from swamp.terminal import print_json, print_line, print_remark, print_table

    for option, value in (("--gpus-per-host", per_host), ("--bandwidth", bandwidth), ("--network", network), ("--hours", hours)):
        if value is not None and not 0 < value < float("inf"):
            raise ValueError(f"{option} {value}: expected a positive number")
    for option, value in (("--latency", latency), ("--image-kilobytes", image_kilobytes)):
        if value is not None and not 0 <= value < float("inf"):
            raise ValueError(f"{option} {value}: expected a number that is not negative")
    if shared_rate is not None and rate is None:
        raise ValueError(f"--shared-rate {shared_rate}: give --rate with it, what a GPU trains alone; else both are timed here")
    counts = parse_numbers("--gpus", gpus, least=1, different=True)
    recipe, settings = recipe_and_settings(arguments, plan)
    settings |= {name: value for name, value in (("data", data), ("scale", scale)) if value is not None}
    config = resolve(build_config(recipe, settings), here=rate is None)
    task, is_here = planned_task(config, print_remark)
    if rate is None and not is_here:
        raise ValueError("without the data no step can be timed here: give --rate, the examples a second that one of your GPUs trains")
    whole = make_plan(config, task)
    for remark in plan_remarks(config, task, whole):
        print_remark(remark)
    work = work_of(task, whole, stored_bytes(task) if image_kilobytes is None else round(1000 * image_kilobytes))
    shares = sorted({data for count in counts for data in group_sizes(count, task.batch_size) if data > 1})
    paces = given_paces(rate, shared_rate) if rate is not None else measured_paces(config, task, shares, print_remark)
    found = []
    for count in counts:
        cluster = Cluster(count, per_host, 1e9 * bandwidth, 1e9 * network, 1e-6 * latency, checkpoint=config.checkpoint_seconds)
        found.append((cluster, layouts(cluster, work, paces)))
    if json:
        plain = {str(cluster.num_ranks): predictions for cluster, predictions in found}
        print_json({"work": work, "gpus": plain})
        return
    for cluster, predictions in found:
        print_table(layout_table(cluster, work, predictions, hours))
        print()
    print_line("this was a plan; nothing was trained")
