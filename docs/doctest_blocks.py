"""Shows the doctests of docstrings as code in the API reference: an extension of griffe, which reads the docstrings (zensical.toml)."""

from __future__ import annotations

import re
from typing import Any

from griffe import Docstring, Extension, Object

# From the first prompt to the next empty line, or to the end of the docstring.
DOCTEST = re.compile(r"^([ ]*)>>> .*?(?=\n[ ]*\n|\Z)", re.DOTALL | re.MULTILINE)


class DoctestBlocks(Extension):
    """Puts every doctest into a fenced block, so that Markdown does not read `>>>` as a quotation and `[1, 2]` as a link."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            fenced = DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", obj.docstring.value)
            obj.docstring = Docstring(fenced, parent=obj, parser=obj.docstring.parser, parser_options=obj.docstring.parser_options)
