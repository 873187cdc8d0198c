"""The sparse path: compiled networks against torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import swamp
from swamp.export import native
from swamp.tasks.models import find_model
from swamp.tasks.models.resnet import ResNet
from tests.support.compiling import needs_compiler

pytestmark = pytest.mark.usefixtures("own_cache")


class Everything(nn.Module):
    """What the models of the library leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.grouped = nn.Conv2d(4, 6, 5, padding=2, groups=2)
        self.dilated = nn.Conv2d(6, 8, 3, stride=3, padding=2, dilation=2, bias=False)
        self.wide = nn.Conv2d(6, 8, (1, 3), stride=3, padding=(0, 1))
        self.norm, self.dropout = nn.BatchNorm2d(8, affine=False), nn.Dropout()
        self.hidden, self.last = nn.Linear(8 * 4 * 2, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.grouped(x)
        y = self.norm(self.dilated(x) + self.wide(x.relu()))
        y = nn.functional.max_pool2d(y.relu(), 3, 1, 1) + nn.functional.avg_pool2d(y, 3, 1, 1) + y  # with what is negative
        y = nn.functional.max_pool2d(y, (1, 1))
        return self.last(self.dropout(self.hidden(y.flatten(1))).relu())


def pruned(model: nn.Module, density: float = 0.2) -> nn.Module:
    """With norms that have seen something, and a channel that nothing writes."""
    torch.manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor, low in ((module.weight, 0.5), (module.bias, -0.5), (module.running_mean, -0.5), (module.running_var, 0.5)):
                    if tensor is not None:
                        tensor.uniform_(low, low + 1)
            elif isinstance(module, nn.Conv2d):
                module.weight *= (torch.rand_like(module.weight) < density) / density**0.5
                module.weight[0] = 0
    return model.eval()


MODELS = {
    "digits": (lambda: find_model("resnet-digits")(1, 10), (1, 8, 8)),
    "wrn": (lambda: find_model("wrn10-2")(3, 10), (3, 16, 16)),
    "vgg": (lambda: find_model("vgg13")(3, 5), (3, 16, 16)),
    "bottlenecks, odd sizes": (lambda: ResNet(3, 5, depths=(2, 1, 2, 1), bottlenecks=True, imagenet_stem=True), (3, 35, 33)),
    "everything": (Everything, (4, 10, 6)),
    "vectors": (lambda: nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 4)), (5,)),
}


@needs_compiler
@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_torch_does(name: str) -> None:
    make, shape = MODELS[name]
    model = pruned(make())
    fast = swamp.compile_sparse(model, torch.zeros(1, *shape))
    for size in (1, 11, 2, 3, 0):  # one by one, in blocks, and back: nothing of one batch may stay for the next
        x = 3 * torch.randn(size, *shape) + 1
        with torch.no_grad():
            expected = model(x)
        found = fast(x)
        assert found.shape == expected.shape
        assert not size or (found - expected).abs().amax() < 1e-5 * expected.abs().amax()


@needs_compiler
def test_pruned_weights_are_left_out() -> None:
    model = pruned(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 2))
    )
    network = swamp.compile_sparse(model, torch.zeros(1, 3, 4, 4)).network
    taps = [sum(len(part.row) for part in step.parts) for step in network.steps[1:]]
    assert taps == [int(model[0].weight.count_nonzero()), 8 * 16 * 2]  # and the norm is folded


@needs_compiler
def test_threads_may_share_a_network() -> None:
    model = pruned(find_model("resnet-digits")(1, 10))
    fast, inputs = swamp.compile_sparse(model, torch.zeros(1, 1, 8, 8)), torch.randn(4, 50, 1, 8, 8)
    expected, found = [fast(x) for x in inputs], [[] for _ in inputs]
    threads = [
        threading.Thread(target=lambda x=x, to=to: to.extend(fast(x) for _ in range(20))) for x, to in zip(inputs, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, right) for many, right in zip(found, expected, strict=True) for one in many)


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Sigmoid()), (3, 8, 8), "does not know sigmoid"),
        (nn.Conv2d(3, 4, 3), (3, 8, 8), "keep an image's size"),
        (nn.MaxPool2d(3, 2, 1), (3, 8, 8), "pads with zeros"),
        (nn.Linear(8, 2), (3, 8, 8), "not of each pixel"),
        (nn.ReLU(), (3, 8, 8), "one vector for each input"),
        (nn.Flatten(2), (3, 8, 8), "no change of shape"),
        (nn.BatchNorm1d(4, track_running_stats=False), (4,), "stored statistics"),
        (nn.Linear(4, 2).double(), (4,), "float32"),
        (nn.Linear(4, 2), (4, 4, 4, 4), "images or vectors"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(model: nn.Module, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        swamp.compile_sparse(model, torch.zeros(1, *shape))


@needs_compiler
def test_inputs_of_other_sizes_are_refused() -> None:
    fast = swamp.compile_sparse(nn.Linear(4, 2), torch.zeros(1, 4))
    for x in (torch.zeros(2, 5), torch.zeros(4), torch.zeros(2, 4, 1)):
        with pytest.raises(ValueError, match=r"compiled for batches of \[4\]"):
            fast(x)


@needs_compiler
def test_the_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.library()
    record, kept = sorted((tmp_path / "swamp").iterdir())  # and no temporary beside them
    assert (record.suffix, kept.suffix) == (".sha256", ".so")
    assert (tmp_path / "swamp").stat().st_mode & 0o777 == 0o700
    written = kept.stat().st_mtime_ns
    native._built.cache_clear()
    native.library()
    assert kept.stat().st_mtime_ns == written
    other = tmp_path / "kernel.cpp"
    other.write_text(native.SOURCE.read_text() + "\n// another\n")
    monkeypatch.setattr(native, "SOURCE", other)
    native._built.cache_clear()
    native.library()
    assert len(list((tmp_path / "swamp").iterdir())) == 4


def test_machines_without_a_compiler_get_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.KernelUnavailable, match=r"needs a C\+\+ compiler, and there is no g\+\+ or clang\+\+ or c\+\+; set CXX"):
        swamp.compile_sparse(nn.Linear(4, 2), torch.zeros(1, 4))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", os.defpath + os.pathsep + str(tmp_path))
    monkeypatch.setenv("CXX", "broken")
    with pytest.raises(native.KernelUnavailable, match="broken could not compile the sparse path: out of order"):
        native.library()
    assert list((tmp_path / "swamp").iterdir()) == []


def test_no_code_is_loaded_from_where_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "swamp").mkdir()
    (tmp_path / "swamp").chmod(0o777)
    with pytest.raises(native.KernelUnavailable, match="not this user's alone"):
        native.cache_directory()


def replaced(path: Path, content: bytes) -> None:
    """Put a new file in the place of one, as others could in a directory that they can write to."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


# What can be wrong with the library or with its record, as a function that makes it so.
WRONGS: dict[str, Callable[[Path, Path], object]] = {
    "empty": lambda library, record: replaced(library, b""),
    "truncated": lambda library, record: replaced(library, library.read_bytes()[:-1]),
    "planted": lambda library, record: replaced(library, b"planted"),
    "planted beside a record that was copied from another library": lambda library, record: (
        replaced(library, b"planted"),
        replaced(record, native._record_of(library.with_name("kernel-other.so"), b"planted")),
    ),
    "without a record": lambda library, record: record.unlink(),
    "with an empty record": lambda library, record: replaced(record, b""),
    "writable by others": lambda library, record: library.chmod(0o622),
    "a record writable by others": lambda library, record: record.chmod(0o620),
    "a link": lambda library, record: linked(library),
    "a record that is a link": lambda library, record: linked(record),
    "a second name of another file": lambda library, record: library.with_name("elsewhere").hardlink_to(library),
    "a pipe": lambda library, record: piped(library),
}


@pytest.fixture
def stub_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that takes no time and counts what it is asked to compile."""
    script = tmp_path / "stub"
    compile_to = f"echo library > $2 && echo >> {tmp_path}/count"
    script.write_text(f"#!/bin/sh\nwhile [ $# -gt 1 ]; do [ $1 = -E ] && exit; [ $1 = -o ] && {compile_to}; shift; done\n")
    script.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return script


def built(compiler: Path) -> tuple[Path, int]:
    """The library as a new process would find or make it, and how often it was compiled so far."""
    native._built.cache_clear()
    path = native._built(str(compiler), native.cache_directory())
    return path, len((compiler.parent / "count").read_text())


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_library_that_others_may_have_put_there_is_compiled_again(wrong: str, stub_compiler: Path) -> None:
    library, count = built(stub_compiler)
    assert built(stub_compiler) == (library, 1) == (library, count)
    WRONGS[wrong](library, library.with_suffix(".sha256"))
    assert built(stub_compiler) == (library, 2)
    assert library.read_bytes() == b"library\n"
    assert library.lstat().st_mode & 0o777 == 0o600
    assert built(stub_compiler) == (library, 2)


def test_a_library_of_another_user_is_not_believed_after_the_directory_was_made_private(
    stub_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever could write to the directory has put a library and its record there; its owner then makes it private."""
    library, _ = built(stub_compiler)
    assert native._own_content(library) == b"library\n"
    monkeypatch.setattr(os, "getuid", lambda: library.stat().st_uid + 1)
    assert native._own_content(library) is None
    assert native._own_content(library.with_suffix(".sha256")) is None


def test_advice_about_a_shared_cache_is_not_to_trust_what_lies_in_it(stub_compiler: Path) -> None:
    native.cache_directory().chmod(0o770)
    with pytest.raises(native.KernelUnavailable, match="not this user's alone, so no code is loaded from it; remove it") as error:
        native.cache_directory()
    assert "chmod" not in str(error.value)


def test_a_library_that_cannot_be_replaced_is_reported(stub_compiler: Path) -> None:
    library, _ = built(stub_compiler)
    library.unlink()
    (library / "full").mkdir(parents=True)
    with pytest.raises(native.KernelUnavailable, match="cannot be kept in the user's cache"):
        built(stub_compiler)
