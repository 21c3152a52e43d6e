"""The parts that the report page is put together from, as HTML."""

import base64
import html
import re
from collections.abc import Sequence

from fernn.experiments.typeset import as_html


def section(anchor: str, heading: str, body: Sequence[str]) -> str:
    """A part of the page under its heading."""
    return f'<section id="{anchor}"><h2>{html.escape(heading)}</h2>{"".join(body)}</section>'


def items(lines: Sequence[str]) -> str:
    """A list, an entry a line; lines are HTML already."""
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def details(summary: str, body: str) -> str:
    """What is shown only when asked for."""
    return f"<details><summary>{html.escape(summary)}</summary>{body}</details>"


def way(how: str) -> str:
    """A command as code, a sentence as it is; no line ends within the name of an option."""
    text = re.sub(r"--[\w-]+", r'<span class="whole">\g<0></span>', html.escape(how))
    return f"<code>{text}</code>" if how.startswith("fernn ") else text


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words; a wide one scrolls by itself. A cell's further lines are soft."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table class="text"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    first, *rest = html.escape(text).split("\n")
    soft = "".join(f'<br><span class="soft">{line}</span>' for line in rest)
    return f"<td>{first}{soft}</td>"


def picture(
    name: str, form: str, content: bytes, note: str, *, kind: str = "", width: int | None = None
) -> str:
    """A picture inside the page, which shrinks with it and does not grow beyond `width` pixels."""
    data = base64.b64encode(content).decode("ascii")
    style = "" if width is None else f' style="max-width: {width}px"'
    return (
        f'<figure class="{kind}"><figcaption><b>{as_html(name)}.</b> {as_html(note)}'
        f'</figcaption><div class="picture"><img alt="{html.escape(name)}"{style} '
        f'src="data:image/{form};base64,{data}"></div></figure>'
    )
