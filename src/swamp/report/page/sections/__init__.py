"""Sections of the HTML report: one file each, found by discovery.

To add one, write a module here that has `order`, its place among the others, and `show(content)`, which returns a `Section` with the data
of its charts, or None where there is nothing to show. The sections of analyses are in the files of the analyses (`show_section`).
"""

from __future__ import annotations

import sys

from swamp.core.discovery import modules_of
from swamp.drawing.markup import Section
from swamp.report.page.content import PageContent

ORDER_OF_ANALYSES = 70


def make_sections(content: PageContent) -> list[Section]:
    """Return the sections of a page from top to bottom."""
    made = [(module.order, module.show(content)) for module in modules_of(sys.modules[__name__])]
    made += [(ORDER_OF_ANALYSES, section) for section in content.analysis_sections()]
    return [section for _, section in sorted(made, key=lambda pair: pair[0]) if section]
