"""Texts that error messages share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's text, or its type where it has no text.

    >>> reason_of(RuntimeError("out of memory\\nand a page of advice")), reason_of(AssertionError())
    ('out of memory', 'AssertionError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__


def brief(value: object, most: int = 80) -> str:
    """Return a value as Python writes it, without its middle where that is long.

    >>> brief("a" * 5000, 20), brief([1, 2])
    ("'aaaaaaaaaaaaa…aaaa'", '[1, 2]')
    """
    try:
        text = " ".join(part.strip() for part in repr(value).splitlines())  # tensors have several lines
    except ValueError:  # Python writes integers of at most 4300 digits.
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[: most - 6]}…{text[-5:]}"


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like an unknown one, or None where none is like it.

    >>> closest("dryrun", ["dry-run", "out"]), closest("SWAMP", ["imp", "swamp"])
    ('dry-run', 'swamp')
    """
    by_small_letters = {one.lower(): one for one in sorted(names)}
    return next((by_small_letters[one] for one in difflib.get_close_matches(name.lower(), by_small_letters, n=1, cutoff=0.5)), None)


def nearest(name: str, names: Iterable[str], meant: str | None = None) -> str:
    """Return the end of a message about an unknown name: the nearest valid name, and all of them where there are at most 20; the first
    ones where none is near. Where it is known which one is `meant`, that is the nearest.

    >>> nearest("swmap", ["imp", "swamp"]), nearest("x", ["imp", "swamp"])
    ("did you mean 'swamp'? Known: imp, swamp", 'known: imp, swamp')
    """
    known = sorted(names)
    close = meant or closest(name, known)
    if not close:
        return "known: " + ", ".join([*known[:30], *["…"] * (len(known) > 30)])
    return f"did you mean {close!r}?" + (f" Known: {', '.join(known)}" if len(known) <= 20 else "")


def require_kind(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Check that an argument which a user may leave out is of a kind.

    >>> require_kind("quiet", "no", bool, "True or False")
    Traceback (most recent call last):
    ValueError: quiet = 'no': expected True or False
    """
    if value is not None and not isinstance(value, kinds):
        raise ValueError(f"{name} = {brief(value)}: expected {expected}")
