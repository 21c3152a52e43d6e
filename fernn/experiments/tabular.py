"""What a table is, before it is text, Markdown or HTML: rows of cells, and the same as data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MISSING, NOT_FINITE = "missing", "not finite"
NONE = "–"
RATIO = "ours / paper"
_FOLDABLE = ("epochs", "precision", "hardware", "data")
_LABELLED = 64  # characters of changes in a label; where there are more, a note has them


@dataclass(frozen=True)
class Row:
    """A line of a table: its cells as text, and the same as data."""

    section: str
    cells: tuple[str, ...]
    data: dict[str, Any]

    @property
    def trained(self) -> bool:
        """Whether it has a run, if only one whose error is not finite."""
        return bool(self.data["n"] or self.data.get("not_finite"))


@dataclass(frozen=True)
class Table:
    """A table ready to be shown in any form."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    scale: str | None = None
    """The scale of every run in it, None where it has none."""
    settings: tuple[str, ...] = ()
    """What the numbers in the labels of changed recipes stand for, a line each."""

    def folded(self) -> "Table":
        """Without the columns that are the same in every row: what they say becomes a note."""
        kept, notes = [], list(self.notes)
        for place, column in enumerate(self.columns):
            values = {row.cells[place] for row in self.rows if row.data["n"]}
            if column == RATIO:
                kept += [place] if values - {NONE} else []
            elif column not in _FOLDABLE or len(values) > 1:
                kept.append(place)
            elif values - {NONE}:
                notes.append(f"{column}: {values.pop()}")
        rows = (
            Row(row.section, tuple(row.cells[place] for place in kept), row.data)
            for row in self.rows
        )
        columns = tuple(self.columns[place] for place in kept)
        return replace(self, columns=columns, rows=tuple(rows), notes=tuple(notes))

    @property
    def measured(self) -> bool:
        """Whether any row has a result."""
        return any(row.trained for row in self.rows)


def settings_label(changes: tuple[str, ...], noted: list[tuple[str, ...]]) -> str:
    """What was changed, or, where that is long, the number of the line that it becomes."""
    made = ", ".join(changes)
    if len(made) <= _LABELLED:
        return made
    if changes not in noted:
        noted.append(changes)
    return f"settings {noted.index(changes) + 1}"


def settings_lines(noted: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What the labels that are numbers stand for; what all of them share is said once.

    >>> settings_lines([("a=1", "b=1"), ("a=1", "b=2")])
    ('all settings: a=1', 'settings 1: b=1', 'settings 2: b=2')
    """
    several = len(noted) > 1
    shared = [change for change in noted[0] if all(change in n for n in noted)] if several else []
    lines = [f"all settings: {', '.join(shared)}"] if shared else []
    for place, changes in enumerate(noted, start=1):
        own = ", ".join(change for change in changes if change not in shared)
        lines.append(f"settings {place}: {own or 'nothing else'}")
    return tuple(lines)
