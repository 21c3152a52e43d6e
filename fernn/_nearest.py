"""A mistyped name, answered with the name that was probably meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str | None, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, empty where none is near or for a number.

    >>> nearest("tabel1", ["table1", "figure3"])
    ' Did you mean table1?'
    """
    if str(name).isdigit():  # 16 is no misspelling of 6
        return ""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""
