"""`swamp bench`: measure training speed on this machine."""

from __future__ import annotations

from swamp.commands.arguments import Flag, RecipeArgument, parse_numbers, recipe_and_settings

group = "Prepare"
usage = "Usage: swamp bench [RECIPE] [--setting VALUE …] [OPTIONS]"


def bench(
    *arguments: RecipeArgument,
    particles: str = "1,2,4,8",
    json: Flag = False,
) -> None:
    """Measure how fast this machine trains a recipe, on each engine and with several particles at once.

    Parameters
    ----------
    arguments
        The recipe, and settings as --name value, as for `swamp run`.
    particles
        Numbers of particles to train at once, such as 1,4.
    json
        Print the measurements as JSON.
    """
    from swamp.report.tables import bench_table
    from swamp.runs.bench import bench as time_engines
    from swamp.runs.bench import measure_machine, variants
    from swamp.runs.config import build_config, resolve
    from swamp.terminal import print_json, print_table

    recipe, settings = recipe_and_settings(arguments, bench)
    config = resolve(build_config(recipe, settings))
    counts = parse_numbers("--particles", particles, least=1)
    machine = measure_machine(config)
    timings = list(time_engines(config, machine, variants(config), counts))
    if json:
        print_json({"machine": machine, "timings": timings})
    else:
        print_table(bench_table(machine, timings))
