from __future__ import annotations

import sys

import pytest
import torch

from swamp.training.step import compiling, split_batch
from tests.support.compiling import needs_compiler


@needs_compiler
@pytest.mark.slow
def test_a_quote_on_the_command_line_does_not_keep_steps_from_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch writes what follows --only into the code that it generates."""
    from torch._inductor.utils import fresh_cache  # It takes seconds to import.

    monkeypatch.setattr(sys, "argv", ["swamp", "sweep", "--only", "IMP's masks"])
    with fresh_cache(), compiling():
        assert torch.compile(lambda x: 2 * x + 1, fullgraph=True)(torch.ones(2)).tolist() == [3, 3]


def test_a_batch_is_split_with_all_that_it_has_for_each_example() -> None:
    batch = {"x": torch.arange(5), "name": list("abcde"), "scale": torch.tensor(2.0), "return_loss": True}
    first, second = split_batch(batch, 2)
    assert (first["x"].tolist(), first["name"], float(first["scale"]), first["return_loss"]) == ([0, 1], ["a", "b"], 2.0, True)
    assert (second["x"].tolist(), second["name"]) == ([2, 3, 4], ["c", "d", "e"])
    assert len(split_batch((torch.zeros(2, 3), [torch.zeros(2), torch.ones(2)]), 5)) == 2


def test_a_batch_whose_tensors_count_other_things_is_not_split() -> None:
    with pytest.raises(
        ValueError, match=r"tensors of 7 and of 3 rows, so that it cannot be split by examples, as optimizer.accumulate does"
    ):
        split_batch({"nodes": torch.zeros(7, 2), "labels": torch.zeros(3)}, 2)
