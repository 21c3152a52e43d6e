"""What a table is, before it is text, Markdown or HTML: rows of cells, and the same as data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

MISSING, NOT_FINITE = "missing", "not finite"
NONE = "–"
RATIO = "ours / paper"
_FOLDABLE = ("epochs", "precision", "hardware")
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


def settings_label(changes: Sequence[str], noted: list[str]) -> str:
    """What was changed, or, where that is long, the number of the note that it becomes."""
    made = ", ".join(changes)
    if len(made) <= _LABELLED:
        return made
    if made not in noted:
        noted.append(made)
    return f"settings {noted.index(made) + 1}"


def settings_notes(noted: Sequence[str]) -> list[str]:
    """What the labels that are numbers stand for."""
    return [f"settings {place}: {made}" for place, made in enumerate(noted, start=1)]
