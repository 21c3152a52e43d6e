"""Tables as text, Markdown, JSON and HTML."""

import html
import json
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from fernn.experiments.tabular import MISSING, Table
from fernn.experiments.typeset import as_html

if TYPE_CHECKING:
    from rich.console import Group


_BROKEN = ("model", "recipe", "epochs", "precision", "hardware")  # columns that may break lines


def to_rich(table: Table) -> "Group":
    """The table for a terminal, folded to be narrow; below it, its settings have all the width."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table as RichTable
    from rich.text import Text

    table = table.folded()
    made = RichTable(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=escape(heading(table)),
        title_justify="left",
        caption=escape("; ".join(table.notes)) or None,
        caption_justify="left",
    )
    for place, column in enumerate(table.columns):
        justify: Literal["left", "right"] = "left" if place == 0 else "right"
        whole = column not in _BROKEN
        made.add_column(escape(column), justify=justify, no_wrap=whole, overflow="fold")
    for section, rows in groupby(table.rows, key=lambda row: row.section):
        made.add_section()
        made.add_row(f"[bold]{escape(section)}[/]")
        for row in rows:
            made.add_row(*(f"[dim]{c}[/]" if c == MISSING else escape(c) for c in row.cells))
    below = RichTable.grid(padding=(0, 1))
    for line in table.settings:
        name, _, changes = line.partition(": ")
        below.add_row(*(Text(words, style="table.caption") for words in (f"{name}:", changes)))
    return Group(made, *([below] if table.settings else []))


def to_markdown(table: Table) -> str:
    """The table for a document."""
    lines = [f"**{heading(table)}**", "", _line(("", *table.columns))]
    lines.append(_line(("---", "---", *("---:" for _ in table.columns[1:]))))
    lines += [_line((row.section, *row.cells)) for row in table.rows]
    settings = [f"- {line}" for line in table.settings]
    lines += ["", *(f"{note}." for note in table.notes), *([""] * bool(settings)), *settings]
    return "\n".join([*lines, ""])


def to_json(*tables: Table) -> str:
    """A table at one or several scales for a program, numbers in full; each row has its scale."""
    content = {
        "table": tables[0].key,
        "title": tables[0].title,
        "notes": list(
            dict.fromkeys(n for table in tables for n in (*table.notes, *table.settings))
        ),
        "rows": [row.data for table in tables for row in table.rows],
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def to_html(table: Table) -> str:
    """The table for the report, folded; a wide one scrolls by itself."""
    table = table.folded()
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = []
    for section, rows in groupby(table.rows, key=lambda row: row.section):
        title = as_html(section)
        body.append(
            f'<tr class="section"><th colspan="{len(table.columns)}"><span>{title}</span></th></tr>'
        )
        for row in rows:
            first, *rest = (
                f'<span class="missing">{cell}</span>' if cell == MISSING else as_html(cell)
                for cell in row.cells
            )
            cells = "".join(f"<td>{cell}</td>" for cell in rest)
            body.append(f"<tr><th>{first}</th>{cells}</tr>")
    notes = "<br>".join(map(as_html, ("; ".join(table.notes), *table.settings)))
    return (
        f'<figure class="table"><figcaption><b>{as_html(heading(table))}.</b> {notes}'
        f'</figcaption><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></figure>"
    )


def heading(table: Table) -> str:
    """ "Table 2, scale short: …" for the paper's tables, the title first for others."""
    at = f", scale {table.scale}" if table.scale else ""
    numbered = table.key[0].isdigit()
    return f"Table {table.key}{at}: {table.title}" if numbered else f"{table.title}{at}"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
