"""HTML from values: whatever is not known to be HTML is escaped."""

from __future__ import annotations

import html
import json
import math
from typing import Any


class Html(str):
    """Text that is HTML already."""


VOID = {"wbr"}


def element(name: str, *children: Any, **attributes: Any) -> Html:
    """Return an element. Children that are no `Html` are escaped, None among them is left out; so is an attribute that is None or False.

    >>> element("p", "1 < 2", element("b", "yes"), class_="note", hidden=True)
    '<p class="note" hidden>1 &lt; 2<b>yes</b></p>'
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{html.escape(str(value))}"')
    return Html("".join(parts) + ">" + join(*children) + ("" if name in VOID else f"</{name}>"))


def join(*children: Any) -> Html:
    return Html("".join(child if isinstance(child, Html) else html.escape(str(child)) for child in children if child is not None))


def json_text(value: Any) -> Html:
    """Return JSON that can stand in a <script> element: nothing in it can end the element or begin a comment, and no number is infinite.

    >>> json_text({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script\\\\u003e","b":null}'
    """
    text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
