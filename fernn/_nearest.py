"""A mistyped name, answered with the name that was probably meant."""

import difflib
from collections.abc import Iterable

_MOST = 3  # names with the same last part that are suggested


def nearest(name: str | None, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, empty where none is near or for a number.

    The last part of a name stands for the whole of it.

    >>> nearest("tabel1", ["table1", "figure3"])
    ' Did you mean table1?'
    >>> nearest("fernn-v2", ["translating-mnist/fernn-v1", "translating-mnist/fernn-v2"])
    ' Did you mean translating-mnist/fernn-v2?'
    """
    if str(name).isdigit():  # 16 is no misspelling of 6
        return ""
    known = list(known)
    close = [whole for whole in known if whole.endswith(f"/{name}")][:_MOST]
    close = close or difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f" Did you mean {' or '.join(close)}?" if close else ""
