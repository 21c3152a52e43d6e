"""A figure is a list of panels; each says what it lacks, and none invents anything."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fernn._files import written_whole
from fernn.experiments.lacking import said
from fernn.experiments.typeset import as_mathtext

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

Paint = Callable[["FigureBase"], None]

PANEL = (4.8, 3.6)  # inches: letters are still read where a phone shows it
ROW_WIDTH = 11.0  # inches
DARK, LIGHT = "#222222", "#777777"


@dataclass(frozen=True)
class Panel:
    """One picture of a figure. `paint` is None where nothing it needs has been measured."""

    title: str
    paint: Paint | None
    missing: tuple[str, ...] = ()
    note: str = ""
    size: tuple[float, float] = PANEL
    scale: str | None = None


def compose(panels: Sequence[Panel], *, captions: bool = True) -> "Figure":
    """All panels that have something to draw in one figure, side by side as far as they fit.

    The last of them names what the others lack, too; there must be one.
    Without `captions`, titles and notes are left to whoever shows it.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = _rows(drawn(panels))
    heights = [max(panel.size[1] for panel in row) for row in rows]
    width = max(sum(panel.size[0] for panel in row) for row in rows)
    # Pictures keep their shape, which moves labels a little after room was made for them.
    engine = ConstrainedLayoutEngine(w_pad=0.12)
    figure = Figure(figsize=(width, sum(heights)), layout=engine, facecolor="white")
    for row, band in zip(rows, _split(figure, heights, across=False), strict=True):
        widths = [panel.size[0] for panel in row]
        for panel, place in zip(row, _split(band, widths, across=True), strict=True):
            _fill(panel, place, captions)
    return figure


def save(figure: "Figure", path: Path, *, about: str | None = None) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of its name, whole or not at all; what it
    is about is kept in the file."""
    ending = form(path)
    place = "Subject" if ending == "pdf" else "Description"
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        figure.savefig(part, format=ending, dpi=120, metadata={place: about} if about else None)


def form(path: Path) -> str:
    """What kind of picture a path names."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in ("png", "svg", "pdf"):
        raise ValueError(f"`out` must end with .png, .svg or .pdf, got {str(path)!r}.")
    return ending


def drawn(panels: Sequence[Panel]) -> list[Panel]:
    """The panels that have something to draw; the last tells what the rest lack."""
    some = [panel for panel in panels if panel.paint]
    lost = [name for panel in panels if not panel.paint for name in panel.missing]
    return [*some[:-1], *(replace(last, missing=(*last.missing, *lost)) for last in some[-1:])]


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Panels side by side where the row has room and none would be stretched to its height."""
    rows: list[list[Panel]] = []
    for panel in panels:
        together = [*rows[-1], panel] if rows else []
        heights = [p.size[1] for p in together]
        fits = sum(p.size[0] for p in together) <= ROW_WIDTH
        if together and fits and max(heights) <= 1.6 * min(heights):
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _split(figure: "FigureBase", sizes: list[float], *, across: bool) -> list["FigureBase"]:
    if len(sizes) == 1:
        return [figure]
    if across:
        made = figure.subfigures(1, len(sizes), squeeze=False, width_ratios=sizes)
    else:
        made = figure.subfigures(len(sizes), 1, squeeze=False, height_ratios=sizes)
    return list(made.flat)


def _fill(panel: Panel, place: "FigureBase", captions: bool) -> None:
    if captions:
        place.suptitle(as_mathtext(panel.title), fontsize=11, color=DARK)
    wide = int(panel.size[0] * 18)  # letters that fit below a panel
    lacks = [textwrap.fill(line, wide) for line in said(panel.missing)]
    assert panel.paint is not None  # `drawn` keeps no other
    panel.paint(place)
    note = as_mathtext(textwrap.fill(panel.note, wide, break_on_hyphens=False))
    foot = "\n".join(line for line in (note, *lacks) if line)
    if foot and captions:
        place.supxlabel(foot, fontsize=7.5, color=LIGHT)
