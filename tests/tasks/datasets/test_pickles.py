from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swamp.tasks.datasets.cifar import load_arrays
from tests.support.made_up_datasets import python2_pickle


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_as_python_2_wrote_them(order: str) -> None:
    array = np.asarray(np.arange(24, dtype=np.uint8).reshape(2, 3, 4), order=order)  # type: ignore[call-overload]
    found = load_arrays(python2_pickle({"data": array, "labels": [3, -1, 70000], "note": "text"}))
    assert np.array_equal(found[b"data"], array)
    assert found[b"labels"] == [3, -1, 70000]
    assert found[b"note"] == b"text"


class Calls:
    """A pickle of it calls whatever it says."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("what", ["system", "eval", "getattr", "open"])
def test_a_hostile_pickle_runs_nothing(what: str, protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    hostile = {
        "system": Calls(os.system, f"touch {trace}"),
        "eval": Calls(eval, f"open({str(trace)!r}, 'w')"),
        "getattr": Calls(getattr, str, "join"),
        "open": Calls(open, str(trace), "w"),
    }[what]
    with pytest.raises(ValueError, match=r"not a pickle of plain arrays \(it asks for "):
        load_arrays(pickle.dumps({"data": hostile}, protocol))
    assert not trace.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("numpy", "ndarray.__class__"),
        ("numpy.core.multiarray", "_reconstruct.__globals__"),
        ("numpy", "load"),
        ("numpy._core.multiarray", "_reconstruct"),
    ],
)
def test_only_three_names_are_answered(module: str, name: str) -> None:
    with pytest.raises(ValueError, match="it asks for"):
        load_arrays(f"c{module}\n{name}\n.".encode())


def test_no_stand_in_can_be_changed_for_the_next_pickle() -> None:
    # BUILD with a pair sets attributes of what it finds on the stack, here of the class that stands for numpy.dtype
    set_code = b"\x80\x02cnumpy\ndtype\n(N}(T\x04\x00\x00\x00codeK\x01utb."
    with pytest.raises(ValueError, match="not a pickle"):
        load_arrays(set_code)
    assert load_arrays(python2_pickle({"data": np.zeros(3, np.uint8)}))[b"data"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\x80\x02.",
        python2_pickle({"data": np.zeros(3, np.uint8)})[:-5],
        python2_pickle({"data": np.zeros(3, np.uint8)}).replace(b"u1", b"O8"),
        python2_pickle({"data": np.zeros(3, np.uint8)}).replace(b"J\x03\x00\x00\x00t", b"J\x04\x00\x00\x00t"),
        b"\x80\x02]q\x00.",
        b"\x80\x02}(T\x04\x00\x00\x00datacnumpy.core.multiarray\n_reconstruct\n)Ru.",
    ],
    ids=["empty", "garbage", "nothing", "short", "objects", "shape", "list", "no-state"],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a pickle"):
        load_arrays(data)
