"""Keys of trainings never change by accident: a cache that was filled once stays of use.

If a change of the code changes the numbers, raise `NUMERICS_VERSION` and pin the new keys: run this file as a script to print them.
"""

from __future__ import annotations

import hashlib

import pytest

from swamp.runs.config import build_config, resolve
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import open_task
from swamp.runs.plan import make_plan

PINNED: dict[str, str] = {
    "dense": "d921e5738d569847",
    "dst": "d2b17735441d3108",
    "gradual": "6607d84270563f48",
    "grasp": "c35e6561090bbe32",
    "imp": "a5fcc0352f325a6e",
    "imp-sam": "ec032956fa744cd2",
    "lottery-pools": "af6a9989caf0808a",
    "magnitude": "e2b3e2ef37fae38c",
    "random": "7a4430f786f9beb6",
    "retrain": "bd4e19d1b05390b4",
    "rigl": "1029a072e1ec6ca7",
    "rigl-swamp": "f9bfee71c982513f",
    "snip": "cb9a7e4c7db46dc6",
    "swamp": "efeba7e4fb520b07",
    "synflow": "659abdf92e425087",
    "swamp, rewinding the learning rate": "e692dda4cee24735",
    "imp, adam": "6f9905ba31e88db2",
    "imp, another seed": "c300c30853b216da",
    "imp, compiled": "ef468298612cdc8f",
    "swamp, cosine-to": "0fe44f954ad35286",
}
SETTINGS: dict[str, dict[str, object]] = {
    "swamp, rewinding the learning rate": {"method": "swamp", "pruning.rewind": "lr"},
    "imp, adam": {"method": "imp", "optimizer.name": "adam"},
    "imp, another seed": {"method": "imp", "seed": 1},
    "imp, compiled": {"method": "imp", "compile": True},
    "swamp, cosine-to": {"method": "swamp", "swa.entry": "cosine-to"},
}


def training_keys(name: str) -> str:
    """A digest of the keys of the init and of all trainings that a run on the digits plans."""
    settings = SETTINGS.get(name, {"method": name})
    config = resolve(build_config("digits", {"device": "cpu", "precision": "float32", **settings}))
    task = open_task(config)
    keys = [JobMaker(config, task).init_key, *(job.key for job in make_plan(config, task).jobs)]
    return hashlib.sha256("".join(keys).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", PINNED)
def test_the_keys_of_a_methods_trainings_are_what_they_were(name: str) -> None:
    assert training_keys(name) == PINNED[name]


def test_pinned_keys_differ() -> None:
    assert len(set(PINNED.values())) == len(PINNED) == 20


if __name__ == "__main__":
    from swamp.methods import methods

    for name in [*methods(), *SETTINGS]:
        print(f'    "{name}": "{training_keys(name)}",')
