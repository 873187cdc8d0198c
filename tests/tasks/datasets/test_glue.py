from __future__ import annotations

from pathlib import Path

import pytest

from swamp.tasks.datasets.glue import MRPC, RTE, TEXT_SETS, GlueFormat, read_mrpc, read_pairs, read_rte
from tests.support.made_up_text import rows_of, table_text, write_glue

QUOTED = 'He said " yes'


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


def write(folder: Path, table: GlueFormat, text: str, name: str = "dev.tsv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8-sig")
    return path


@pytest.mark.parametrize(("name", "metric", "counts"), [("mrpc", "f1", (3668, 408)), ("rte", "accuracy", (2490, 277))])
def test_both_sets(glue: Path, name: str, metric: str, counts: tuple[int, int]) -> None:
    for place in (glue, glue / name.upper()):
        found = TEXT_SETS[name](str(place))
        assert tuple(len(found.splits[split].labels) for split in ("train", "test")) == counts
        assert (found.metric, found.num_classes) == (metric, 2)
    table = MRPC if name == "mrpc" else RTE
    rows = rows_of(table, "dev.tsv")
    test = found.splits["test"]
    assert list(zip(test.first, test.second, (table.classes[label] for label in test.labels.tolist()), strict=True)) == rows


def test_the_labelled_test_set_of_mrpc_is_read_when_wanted(glue: Path) -> None:
    found = read_mrpc(str(glue))
    assert found.split_names == ("train", "test", "mrpc-test")
    assert len(found.split("mrpc-test").labels) == 1725
    assert read_rte(str(glue)).split_names == ("train", "test")


def test_held_out_examples_are_not_trained_on(glue: Path) -> None:
    whole, held = read_rte(str(glue)), read_rte(str(glue)).holding_out(100, seed=3)
    assert [len(held.splits[split].labels) for split in ("train", "validation", "test")] == [2390, 100, 277]
    both = [*zip(held.splits["train"].first, held.splits["train"].second, strict=True)]
    both += zip(held.splits["validation"].first, held.splits["validation"].second, strict=True)
    assert sorted(both) == sorted(zip(whole.splits["train"].first, whole.splits["train"].second, strict=True))


def test_quotes_separators_and_line_ends_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CSV reader would take everything between two bare quotes for one field, and splitlines breaks at U+2028 and U+0085."""
    monkeypatch.setitem(MRPC.counts, "dev.tsv", (1, 2))
    rows = [(QUOTED, "yes", "1"), ("a\u2028b", 'c "', "0"), ("x\x85y", " z ", "1")]
    text = table_text(MRPC, rows)
    for written in (text, text.replace("\n", "\r\n")):
        path = tmp_path / "dev.tsv"
        path.write_bytes(written.encode("utf-8-sig"))
        found = read_pairs(MRPC, path)
        assert (list(found.first), list(found.second)) == ([QUOTED, "a\u2028b", "x\x85y"], ["yes", 'c "', " z "])
        assert found.labels.tolist() == [1, 0, 1]


def test_a_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path, MRPC, table_text(RTE, [("a", "b", "entailment")]))
    with pytest.raises(ValueError, match=r"dev\.tsv has no column '#1 String' \(its first line names index, sentence1.*get it from https"):
        read_pairs(MRPC, path)
    with pytest.raises(ValueError, match="its first line names none"):
        read_pairs(MRPC, write(tmp_path, MRPC, ""))


def test_a_bad_label(tmp_path: Path) -> None:
    path = write(tmp_path, RTE, table_text(RTE, [("a", "b", "entailment"), ("a", "b", "neutral")]))
    with pytest.raises(ValueError, match="row 2 has the label 'neutral', which is none of entailment, not_entailment"):
        read_pairs(RTE, path)


def test_a_row_cut_short(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dev\.tsv is damaged .*\(row 1 has 3 fields instead of 4\)"):
        read_pairs(RTE, write(tmp_path, RTE, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n"))


def test_other_counts_than_the_published_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it has 1 labelled entailment and 0 labelled not_entailment, not 146 and 131"):
        read_pairs(RTE, write(tmp_path, RTE, table_text(RTE, [("a", "b", "entailment")])))


def test_other_bytes_than_utf8(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"dev\.tsv is damaged or not the published file"):
        read_pairs(RTE, tmp_path / "dev.tsv")


def test_a_missing_folder_or_file(glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWAMP_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"GLUE's MRPC is read from a folder that you name with --data DIR or SWAMP_DATA; DIR should contain MRPC/"
    ):
        read_mrpc("")
    with pytest.raises(ValueError, match=r"GLUE's RTE was not found: there is no RTE/train\.tsv or glue/RTE/train\.tsv"):
        read_rte(str(tmp_path))
    write(tmp_path, RTE, table_text(RTE, rows_of(RTE, "train.tsv")), "train.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv is missing; DIR should contain RTE/ with train\.tsv \(2,490 rows\)"):
        read_rte(str(tmp_path))
