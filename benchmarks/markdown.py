"""Tables in Markdown, of which every page here is written."""

from collections.abc import Container, Iterable, Sequence


def table(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    words: Container[int] = (0,),
    about: str = "",
) -> str:
    """Columns at the places `words` hold words, the others numbers; `about` stands below in small.

    >>> print(table(["model", "error"], [["G-RNN", 0.5]], about="seed 0"))
    | model | error |
    |---|--:|
    | G-RNN | 0.5 |
    <BLANKLINE>
    <sub>seed 0</sub>
    """
    rules = ("---" if place in words else "--:" for place in range(len(columns)))
    lines = [_line(columns), f"|{'|'.join(rules)}|", *map(_line, rows)]
    return "\n".join([*lines, *(["", f"<sub>{about}</sub>"] if about else [])])


def number(value: object) -> str:
    """Two digits; a word stays as it is, and what is no number is None in a record.

    >>> [number(value) for value in (1 / 3, 0, None, "exact")]
    ['3.3e-01', '0', 'not finite', 'exact']
    """
    if value is None:
        return "not finite"
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if value else "0"


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
