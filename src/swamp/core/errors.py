"""Errors of others, for people."""

from __future__ import annotations


def reason_of(error: Exception) -> str:
    """What it says, in one line.

    >>> reason_of(RuntimeError("out of memory\\nand a page of advice")), reason_of(AssertionError())
    ('out of memory', 'AssertionError')
    """
    return str(error).strip().partition("\n")[0] or type(error).__name__
