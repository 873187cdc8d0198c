"""Writes the second half of docs/methods.md, which follows from the code: python docs/methods_page.py"""

from __future__ import annotations

from pathlib import Path

from swamp.methods import methods
from swamp.report.method_page import method_page

PAGE = Path(__file__).with_name("methods.md")
MARK = "<!-- from here on made by: python docs/methods_page.py -->\n\n"


def with_methods(text: str) -> str:
    """Return the text of the page with the part below the mark made anew."""
    before, mark, _ = text.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE} lacks the line {MARK.strip()}")
    return before + MARK + "\n\n".join(method_page(method) for method in methods().values()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_methods(PAGE.read_text()))
