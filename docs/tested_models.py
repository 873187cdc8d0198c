"""Writes the table "Models that are tested" in docs/custom.md from the cases of the tests: python docs/tested_models.py"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("custom.md")
sys.path.append(str(PAGE.parents[1]))  # where `tests` lies

from tests.support.own_models import CASES  # noqa: E402
from tests.support.own_models.case import Case  # noqa: E402

BLOCK = re.compile(r"(?<=<!-- made by: python docs/tested_models.py -->\n).*?(?=\n\n|\Z)", re.DOTALL)


def with_models(text: str) -> str:
    """Return the text of the page with the table made anew."""
    if not BLOCK.search(text):
        raise ValueError(f"{PAGE} lacks the line <!-- made by: python docs/tested_models.py -->")
    header = ["model", "prune", "resume", "load", "export", "ONNX"]
    lines = [header, ["---"] * len(header), *map(line, CASES)]
    return BLOCK.sub(lambda _: "\n".join(f"| {' | '.join(cells)} |" for cells in lines), text)


def line(case: Case) -> list[str]:
    """Return a case's cells."""
    if case.refused:
        return [case.shows, "refused, with the reason", *["–"] * 4]
    return [case.shows, *["yes"] * 4, "–" if case.no_onnx else "yes"]


if __name__ == "__main__":
    PAGE.write_text(with_models(PAGE.read_text()))
