"""Run every method on one small task and print the accuracy at four sparsities, over three seeds.

    python benchmarks/methods.py [--out runs/methods] [--seeds 3,4,5] [--methods imp,swamp] [--settings --cycle.epochs 2]

It can be stopped and resumed; tickets and masks are shared through a cache. Seeds 0 to 2 chose the digits recipe, so others are used.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import swamp
from swamp.drawing.tables import markdown
from swamp.methods import methods, presets
from swamp.progress_display import ProgressLines
from swamp.results.comparison import comparisons
from swamp.results.series import make_series
from swamp.results.stored_run import read_run
from swamp.runs.setting_list import parse_setting


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--seeds", default="3,4,5")
    parser.add_argument("--methods", default=",".join([*methods(), *presets()]))
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--settings", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args(given)
    words = arguments.settings
    settings = dict(parse_setting(name.removeprefix("--"), text) for name, text in zip(words[::2], words[1::2], strict=True))
    directories = []
    for method in arguments.methods.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            directory = arguments.out / method / f"seed-{seed}"
            begin = time.monotonic()
            chosen = {**settings, "method": method, "seed": seed}
            swamp.run(arguments.recipe, out=directory, cache=arguments.out / "cache", listener=ProgressLines(), **chosen)
            print(f"{method}, seed {seed}: {time.monotonic() - begin:.0f} s", flush=True)
            directories.append(directory)
    for table in comparisons(make_series(map(read_run, directories))):
        print(markdown(table))


if __name__ == "__main__":
    main()
