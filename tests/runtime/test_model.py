"""How a loaded network is called: inputs, sizes, threads, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swamp_runtime
import torch
from swamp_runtime import Malformed, Port

import swamp
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export.formats.sparse import encode
from tests.support.compiling import needs_compiler
from tests.support.files import conv_node, convolutions, program_file, sparse_file
from tests.support.hostile import GOOD, assembled, parts
from tests.support.networks import Two, given, normal

pytestmark = [needs_compiler, pytest.mark.usefixtures("compiled_runtime")]


def token_file() -> bytes:
    tensors = {"table": torch.arange(10.0).view(5, 2) + 1}
    return program_file([{"op": "embedding", "in": [0], "weight": "table"}], tensors, [1, 1, None], "tokens")


@cache
def two_inputs() -> bytes:
    return sparse_file(Two(), given(normal(2, 3, 5, 5), vector=normal(2, 6)), about={"notes": 'ä "]'})


def edited(content: bytes, change: Any) -> bytes:
    """The file after a change of its meta, with the right checksum."""
    header, stored, data = parts(content)
    change(stored["meta"])
    return assembled(header, stored, data, honest=True)


# -- results -----------------------------------------------------------------------------------------------------------------------------


def test_a_sum_by_hand() -> None:
    weight = torch.tensor([[[[1.0, 2, 0], [0, 0, 0], [0, 0, -1]]]])
    model = swamp_runtime.load_bytes(program_file([conv_node(0, "w", padding=[1, 1])], {"w": weight}, [1, 2, 2]))
    assert model(np.array([[[[1, 2], [3, 4]]]])).tolist() == [[[[-4, 0], [2, 1 + 4]]]]


def test_names_and_sizes_of_inputs_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "two.swamp"
    path.write_bytes(two_inputs())
    model = swamp.runtime.load(path)
    assert model.inputs == [Port("image", "image", 3, 5, 5), Port("vector", "vector", 6, 1, 1)]
    assert [(port.name, port.kind) for port in model.outputs] == [("maps", "image"), ("sums.0", "vector"), ("sums.1", "vector")]
    assert model.about == {"notes": 'ä "]'}
    image, vector = normal(2, 3, 5, 5).numpy(), normal(2, 6).numpy()
    for ours, theirs in zip(model(vector=vector, image=image), model(image, vector), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_description_may_hold_any_number_of_64_bits() -> None:
    model = swamp_runtime.load_bytes(sparse_file(Two(), given(normal(2, 3, 5, 5), vector=normal(2, 6)), about={"seed": 2**63 - 1}))
    assert model.about == {"seed": 2**63 - 1}
    with pytest.raises(Malformed, match="a number that is too large"):
        swamp_runtime.load_bytes(edited(two_inputs(), lambda meta: meta["about"].update(seed=2**63)))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"op": "global_max"}, [[float("nan")]]),
        ({"op": "max_pool", "kernel": [1, 3], "stride": [1, 3], "padding": [0, 0]}, [[float("nan")]]),
        (
            {"op": "upsample", "factor": [1, 2], "mode": "nearest", "align_corners": False},
            [[1, 1, float("nan"), float("nan"), *2 * [float("inf")]]],
        ),
    ],
)
def test_an_operation_without_arithmetic_passes_on_what_is_not_finite(node: dict[str, Any], expected: list[list[float]]) -> None:
    model = swamp_runtime.load_bytes(program_file([{**node, "in": [0]}], {"unread": torch.eye(2)}, [1, 1, 3]))
    np.testing.assert_array_equal(model(np.array([[[[1.0, np.nan, np.inf]]]]))[0, 0], expected)


def test_numbers_of_other_types_and_layouts_are_converted() -> None:
    model = swamp_runtime.load_bytes(convolutions())
    x = np.arange(2 * 3 * 12 * 12).reshape(2, 3, 12, 12) % 7
    right = model(x.astype(np.float32))
    for other in (x, x.astype(np.uint8), x.astype(np.float64), np.asfortranarray(x), x[::1, :, ::-1][:, :, ::-1]):
        np.testing.assert_array_equal(model(other), right)


def test_the_bytes_of_a_file_may_lie_in_any_buffer() -> None:
    content, x = convolutions(), normal(1, 3, 12, 12).numpy()
    for buffer in (bytearray(content), memoryview(content)):
        np.testing.assert_array_equal(swamp_runtime.load_bytes(buffer)(x), swamp_runtime.load_bytes(content)(x))
    with pytest.raises(TypeError, match="is loaded from the bytes of a file, and this is of type str"):
        swamp_runtime.load_bytes("model.swamp")  # type: ignore[arg-type]


def test_a_batch_may_be_empty() -> None:
    assert swamp_runtime.load_bytes(convolutions())(np.zeros((0, 3, 12, 12))).shape == (0, 8, 12, 12)


def test_free_sizes_are_those_of_each_call() -> None:
    model, fixed = swamp_runtime.load_bytes(convolutions(None, None)), {}
    for height, width in [(5, 9), (12, 12), (1, 1), (5, 9), *((side, 3) for side in range(1, 36))]:  # more than are kept
        x = normal(2, 3, height, width).numpy()
        fixed[height, width] = swamp_runtime.load_bytes(convolutions(height, width))
        np.testing.assert_array_equal(model(x), fixed[height, width](x))


def test_layers_say_how_they_are_computed() -> None:
    floats, whole = swamp_runtime.load_bytes(convolutions(None, None)), swamp_runtime.load_bytes(convolutions(values="int8"))
    layers = floats.layers(height=3, width=3)
    assert [layer["name"] for layer in layers if layer["name"] in ("first", "second")] == ["first", "second"]
    assert layers[0]["how"] == "sparse"
    assert 0.2 < layers[0]["density"] < 0.4
    assert whole.layers()[0]["how"] == "sparse"  # 8-bit weights, but no 8-bit inputs
    with pytest.raises(ValueError, match="has a size that the call must give"):
        floats.layers()
    with pytest.raises(TypeError, match="heigth"):
        whole.layers(heigth=3)  # type: ignore[call-arg]


def test_counted_positions() -> None:
    table = torch.arange(12.0).view(6, 2)
    node = {"op": "counted_positions", "in": [0], "weight": "table", "padding": 1, "offset": 1}
    model = swamp_runtime.load_bytes(program_file([node], {"table": table + 1}, [1, 1, None], "tokens"))
    rows = [[2, 1, 3, 1], [1, 1, 1, 2]]
    np.testing.assert_array_equal(model([[7, 1, 7, 1], [1, 1, 1, 0]])[:, :, 0].transpose(0, 2, 1), (table + 1).numpy()[rows])
    with pytest.raises(ValueError, match="has 5 tokens, and the network has places for 4"):
        model([[2, 2, 2, 2, 2]])


def test_sizes_of_outputs_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swamp_runtime.model, "MAX_SHAPES", 3)
    model = swamp_runtime.load_bytes(token_file())
    for length in range(1, 9):
        assert model(np.zeros((1, length), int)).shape == (1, 2, 1, length)
        assert len(model._shapes) <= 3


# -- threads -----------------------------------------------------------------------------------------------------------------------------


def test_any_number_of_threads_computes_the_same() -> None:
    x = normal(9, 3, 12, 12).numpy()
    one = swamp_runtime.load_bytes(convolutions(), threads=1)
    for threads in (2, 3):
        many = swamp_runtime.load_bytes(convolutions(), threads=threads)
        for batch in (1, 2, 9):
            np.testing.assert_array_equal(many(x[:batch]), one(x[:batch]))


def test_several_python_threads_may_call_one_model() -> None:
    model = swamp_runtime.load_bytes(convolutions(None, None), threads=2)
    inputs = [normal(batch, 3, 6 + batch, 9).numpy() for batch in (1, 2, 3, 8)]
    right, found = [model(x) for x in inputs], [[] for _ in inputs]
    threads = [
        threading.Thread(target=lambda x=x, to=to: to.extend(model(x) for _ in range(30))) for x, to in zip(inputs, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(many) == 30 for many in found)
    for many, one in zip(found, right, strict=True):
        for result in many:
            np.testing.assert_array_equal(result, one)


def test_a_call_does_not_hold_pythons_lock() -> None:
    """No thread is interrupted here: this one goes on during the call only if the call lets it."""
    model, x = swamp_runtime.load_bytes(convolutions(), threads=1), np.zeros((3000, 3, 12, 12), np.float32)
    began, ended, interval = threading.Event(), [], sys.getswitchinterval()

    def call() -> None:
        began.set()
        model(x)
        ended.append(True)

    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=call)
        thread.start()
        began.wait()
        ended_before_us = bool(ended)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert ended
    assert not ended_before_us


FORK = """
import os, sys
from pathlib import Path
import numpy as np
from swamp_runtime import library, load
library.PREBUILT = Path(sys.argv[1])
model, x = load(sys.argv[2], threads=2), np.ones((1, 3, 12, 12), np.float32)
right = model(x)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        print("both ended")
    del model  # also in a child that never called it
else:
    assert (model(x) == right).all()
"""


def test_a_forked_process_can_go_on(compiled_runtime: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.swamp"
    path.write_bytes(convolutions())
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(compiled_runtime), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("both ended\n", "", 0)


# -- refusals ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "named", "why"),
    [
        ([np.zeros((2, 3, 12, 11))], {}, r"^x has shape \[2, 3, 12, 11\], and the network takes \(batch, 3, 12, 12\)$"),
        ([np.zeros((3, 12, 12))], {}, r"^x has shape \[3, 12, 12\], and the network takes"),
        ([np.zeros((1, 3, 12, 12), complex)], {}, "^x has type complex128, and the network takes numbers$"),
        ([np.array([["a"]])], {}, "^x has shape"),
        ([], {}, "^the input 'x' is missing; the network takes x$"),
        ([], {"y": np.zeros((1, 3, 12, 12))}, "^the network takes the inputs x, each once; 'y' is none of them or given twice$"),
        ([np.zeros((1, 3, 12, 12))], {"x": np.zeros((1, 3, 12, 12))}, "given twice$"),
        ([1, 2], {}, r"^the network takes 1 inputs \(x\), and 2 are given$"),
    ],
)
def test_wrong_inputs_are_refused_in_a_sentence(arrays: list[Any], named: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        swamp_runtime.load_bytes(convolutions())(*arrays, **named)


def test_inputs_that_do_not_fit_together_are_refused() -> None:
    model = swamp_runtime.load_bytes(two_inputs())
    with pytest.raises(ValueError, match=r"^vector has 3 examples, and image has 2$"):
        model(normal(2, 3, 5, 5).numpy(), normal(3, 6).numpy())


def test_tokens_out_of_range_are_refused() -> None:
    model = swamp_runtime.load_bytes(token_file())
    assert model(np.array([[4, 0]]))[0, :, 0].T.tolist() == [[9, 10], [1, 2]]
    for token in (-1, 5, 1 << 40):
        with pytest.raises(ValueError, match=rf"^token {token} is not between 0 and 4, as table needs it$"):
            model(np.array([[0, token]]))
    with pytest.raises(ValueError, match=r"^x has type float64, and the network takes integers$"):
        model(np.array([[0.0]]))
    assert model(np.array([[1]]))[0, :, 0, 0].tolist() == [3, 4]  # and it goes on


@pytest.mark.parametrize("threads", [0, -1, 1025, 2.0, True, "2"])
def test_threads_are_a_number(threads: Any) -> None:
    with pytest.raises(ValueError, match=r"must be a whole number from 1 to 1024, or None for all cores"):
        swamp_runtime.load_bytes(convolutions(), threads=threads)


def test_weights_that_are_not_finite_are_refused() -> None:
    for number in (float("nan"), float("inf")):
        content = program_file([conv_node(0, "w")], {"w": torch.full((1, 1, 1, 1), number)}, [1, 2, 2])
        with pytest.raises(Malformed, match=r"^w holds a number that is not finite$"):
            swamp_runtime.load_bytes(content)
    bias = program_file([conv_node(0, "w", "b")], {"w": torch.ones(1, 1, 1, 1), "b": torch.tensor([float("nan")])}, [1, 2, 2])
    with pytest.raises(Malformed, match=r"^the tensor b holds a number that is not finite$"):
        swamp_runtime.load_bytes(bias)


def test_files_that_hold_no_network_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.swamp"
    for content, why in (
        (b"", "its header is cut off"),
        (GOOD, "it holds weights, but not how its network computes; its export says why, or was made by an older swamp"),
        (convolutions()[:-1], "a stream lies outside of the file"),
        (edited(convolutions(), lambda meta: meta.update(format=3)), "its format is 3, and this reader knows 1 and 2"),
        (edited(convolutions(), lambda meta: meta["program"]["nodes"][0].update(op="conv\n\x1b9")), r"the unknown operation conv\?\?9$"),
        (edited(convolutions(), lambda meta: meta["program"]["nodes"][0].update(op="x" * 9999)), "the unknown operation x{400,} …$"),
    ):
        path.write_bytes(content)
        with pytest.raises(Malformed, match=f"^'{path}' cannot be run: .*{why}"):
            swamp_runtime.load(path)
    with pytest.raises(OSError, match="No such file"):
        swamp_runtime.load(tmp_path / "none.swamp")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Malformed, match="no regular file"):
        swamp_runtime.load(tmp_path / "pipe")


def test_two_inputs_have_two_names() -> None:
    for name in ("image", "", "vec\0tor"):
        with pytest.raises(Malformed, match="two inputs of its program have one name, or one has none"):
            swamp_runtime.load_bytes(edited(two_inputs(), lambda meta, name=name: meta["program"]["inputs"][1].update(name=name)))


def test_the_description_is_read_whatever_it_holds() -> None:
    about = {"meta": {"about": 5}, "a": '}]"\\', "z": [[{"meta": {"about": {}}}]]}
    state, mask = State({"w": torch.ones(1, 1)}, {}), Mask({"w": torch.ones(1, 1) > 0})
    program = {
        "inputs": [{"name": "x", "kind": "vector", "size": [1, 1, 1]}],
        "nodes": [{"op": "linear", "in": [0], "weight": "w", "bias": None}],
        "outputs": [{"name": "y", "value": 1, "kind": "vector"}],
    }
    content = encode(state, mask, about=about, program=swamp.export.program.NetworkProgram(program, {}))
    assert swamp_runtime.load_bytes(content).about == about


def test_importing_the_runtime_imports_no_torch() -> None:
    code = "import sys, swamp_runtime; print(sorted({'torch', 'swamp', 'scipy', 'safetensors'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
