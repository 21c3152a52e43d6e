"""The report: one HTML page with everything that was measured, and nothing from outside it.

Pictures are inside the page and there is no script, so it opens from the file system, from a mail
or on a phone, today and in ten years.
"""

import html
import io
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import count
from pathlib import Path
from string import Template

import fernn
from fernn._files import written_whole
from fernn.data import Progress, silent
from fernn.experiments import figures, markup, provenance, render, showcase, strips, tables
from fernn.experiments.figures import DATASETS, Panel, Sources, extremes
from fernn.experiments.lacking import remedy, said
from fernn.experiments.results import Results
from fernn.experiments.runs import BEST
from fernn.experiments.typeset import as_html

TITLE = "Flow-equivariant sequence models: what was measured"
PLAYED = 30  # forecast steps of an animation
_FORECASTS = ("14", "4", "12", "15")  # the longest first, since the others are its beginnings
_DPI, _PIXELS = 150, 110  # an inch, in the picture and on the page


@dataclass(frozen=True)
class Section:
    """A part of the page: its heading, its figures by number, and what stands before them."""

    anchor: str
    heading: str
    numbers: tuple[str, ...]


_SECTIONS = (
    Section("learning", "Learning", ("3",)),
    Section("forecasts", "Forecasts", ("12", "4", "13", "14")),
    Section("velocities", "Velocities", ("5", "6", "15")),
    Section("clips", "Clips under a moving camera", ("8", "8-actions", "7", "10")),
    Section("cost", "Cost", ("11",)),
)


def write(
    path: Path,
    results: Results,
    *,
    sources: Sources | None = None,
    forecasts: bool = True,
    pretrained: strips.Forecast | None = None,
    progress: Progress = silent,
) -> list[str]:
    """Write the page; returns the tables and figures that have no results yet.

    `forecasts` runs the models that the runs kept, for strips and animations. `pretrained` is what
    the weights in the package make of a sequence, shown first. `progress` hears of each picture
    before it is drawn.
    """
    page, absent = build(
        results, sources=sources, forecasts=forecasts, pretrained=pretrained, progress=progress
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(page, encoding="utf-8")
    return absent


def build(
    results: Results,
    *,
    sources: Sources | None = None,
    forecasts: bool = True,
    pretrained: strips.Forecast | None = None,
    progress: Progress = silent,
) -> tuple[str, list[str]]:
    """The page as text, and the tables and figures that have no results yet."""
    sources = Sources() if sources is None else sources
    named, other = _named(results), _kept_otherwise(results)
    drawn, absent = _tables(results, named)
    parts, headings = [], {}
    steps = count()
    total = len(figures.FIGURES) + len(DATASETS) * forecasts + (pretrained is not None)

    def begin(what: str) -> None:
        done = next(steps)
        progress(done, total, f"{what} ({done + 1} of {total})")

    if pretrained is not None:
        begin("forecast by pretrained weights")
        headings["pretrained"] = "Pretrained weights"
        parts.append(markup.section("pretrained", headings["pretrained"], _pretrained(pretrained)))
    if drawn:
        headings["tables"] = "Tables"
        parts.append(markup.section("tables", "Tables", drawn))
    pictures = _pictures(results, other, sources, forecasts, begin)
    for section in _SECTIONS:
        body = []
        for number in section.numbers:
            shown, missing = pictures[number]
            body += shown
            if not shown:
                absent[f"Figure {number}: {figures.FIGURES[number][0]}"] = remedy(missing, named)
        if section.anchor == "forecasts" and forecasts:
            body = [*_animations(results, other, sources, begin), *body]
        body = [f'<div class="panels">{"".join(body)}</div>'] if body else []
        if section.anchor == "forecasts" and body:
            body += _without_weights(results)
        rest = tuple(result for result in named.changed if result not in other.found)
        body += _otherwise(section.numbers, replace(named, changed=rest))
        if section.anchor == "cost" and results.every:
            cost = "".join(map(render.to_html, tables.by_scale(tables.COST, results)))
            body.append(markup.details("Every recipe", cost))
        if section.anchor == "clips":
            body += _classes(results)
        if body:
            parts.append(markup.section(section.anchor, section.heading, body))
            headings[section.anchor] = section.heading
    parts.append(markup.section("environment", "Environment", provenance.environment(results)))
    headings["environment"] = "Environment"
    if absent:
        lines = [
            as_html(what) + (f"<br>{markup.way(how)}" if how else "")
            for what, how in absent.items()
        ]
        parts.append(markup.section("absent", "Not measured yet", [markup.items(lines)]))
        headings["absent"] = "Not measured yet"
    template = Template(files(fernn.experiments).joinpath("report.html").read_text("utf-8"))
    links = "".join(f'<a href="#{anchor}">{html.escape(h)}</a>' for anchor, h in headings.items())
    page = template.substitute(
        title=html.escape(TITLE), lead=provenance.lead(results), links=links, body="\n".join(parts)
    )
    return page, [*absent]


def _named(results: Results) -> Results:
    """The results in a folder as a page may name it: it is passed on, and a home is not."""
    folder = results.folder
    if folder.is_absolute():
        inside = folder.is_relative_to(Path.cwd())
        folder = folder.relative_to(Path.cwd()) if inside else Path("RUNS")
    return replace(results, folder=folder)


def _tables(results: Results, named: Results) -> tuple[list[str], dict[str, str]]:
    """The tables with results, each scale apart; those without by name, and how to get them."""
    keys = (key for key in tables.KEYS if key != tables.COST)
    made = [table for key in keys for table in tables.by_scale(key, results)]
    absent = {
        render.heading(table): remedy((row.data["recipe"] for row in table.rows), named)
        for table in made
        if not table.measured
    }
    return [render.to_html(table) for table in made if table.measured], absent


def _kept_otherwise(results: Results) -> Results:
    """Of all runs with other settings those that the page draws, below the plain ones: the runs
    with the one set of settings of which most kept their weights, quick runs apart."""

    def kept(alike: Results) -> int:
        return sum(result.weights is not None for result in alike.found)

    groups = (g for g in results.by_settings() if g.largest_scale != "quick" and kept(g))
    return max(groups, key=kept, default=replace(results, found=(), changed=()))


def _pictures(
    results: Results,
    other: Results,
    sources: Sources,
    forecasts: bool,
    begin: Callable[[str], None],
) -> dict[str, tuple[list[str], list[str]]]:
    """By number, the panels of a figure that have something to show as HTML, and what it lacks.

    Those of other settings lack nothing: which models have them is for whoever set them to say.
    """
    order = [*_FORECASTS, *(number for number in figures.FIGURES if number not in _FORECASTS)]

    def panels(number: str, of: Results) -> list[Panel]:
        made = figures.panels(number, of, sources=sources)
        if number in _FORECASTS and not forecasts:  # no model runs
            made = made[:1] if number == "4" else []
        return made

    made = {}
    for number in order:
        begin(f"figure {number}")
        plain = panels(number, results)
        shown = [
            _picture(f"Figure {number}: {panel.title}", panel) for panel in figures.drawn(plain)
        ]
        also = [] if number in figures.OF_DATA or not other.found else panels(number, other)
        shown += [
            _picture(f"Figure {number}, other settings: {panel.title}", replace(panel, missing=()))
            for panel in also
            if panel.paint
        ]
        made[number] = shown, [name for panel in plain for name in panel.missing]
    return made


def _otherwise(numbers: Sequence[str], named: Results) -> list[str]:
    """Which figures can be drawn of runs with other settings, and how."""
    lines = []
    for number in numbers:
        if ways := figures.with_settings(number, named):
            text = (f"Figure {number} with other settings:", *map(markup.way, ways))
            lines.append(f'<p class="soft">{"<br>".join(text)}</p>')
    return lines


def _without_weights(results: Results) -> list[str]:
    """Why there is no strip and no animation, where records are all that is left of the runs."""
    if any(result.weights for result in results.every):
        return []
    return [
        '<p class="soft">Strips and animations are drawn from the weights of a run. These runs '
        f"have records alone, without {BEST}.</p>"
    ]


def _pretrained(shown: strips.Forecast) -> list[str]:
    """The strip and the animation of the weights that come with the package."""
    panel = showcase.panel(shown)
    return [
        "<p>Models that come with the package, on the first test sequence of its digits: "
        f"<code>{'</code> and <code>'.join(showcase.PAIR)}</code>.</p>",
        f'<div class="panels">{_played(panel.title, shown, panel.note)}'
        f"{_picture(panel.title, panel)}</div>",
    ]


def _picture(name: str, panel: Panel) -> str:
    figure = figures.compose([panel], captions=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    lacks = [f"{line[0].upper()}{line[1:]}." for line in said(panel.missing)]
    note = " ".join([f"{panel.note}."] * bool(panel.note) + lacks)
    width = round(panel.size[0] * _PIXELS)
    return markup.picture(name, "png", buffer.getvalue(), note, width=width)


def _animations(
    results: Results, other: Results, sources: Sources, begin: Callable[[str], None]
) -> list[str]:
    made = []
    for part, title in DATASETS.items():
        begin(f"animation of {title}")
        for found in (extremes(part, of, None) for of in (results, other)):
            if found.runs:
                shown = sources.forecast(found.runs, PLAYED)
                made.append(_played(f"{title}, forecast of {PLAYED} frames", shown, found.note))
    return made


def _played(name: str, shown: strips.Forecast, note: str) -> str:
    """An animation inside the page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forecast.gif"
        strips.animation(shown, path)
        content = path.read_bytes()
    note = f"{shown.caption}; {note}"
    return markup.picture(name, "gif", content, note, kind="played")


def _classes(results: Results) -> list[str]:
    """Accuracy of each class, a table for each archive of clips, the mean over seeds."""
    tables_of: dict[str, dict[tuple[str, str], list[dict[str, float | None]]]] = {}
    for result in results.every:
        accuracy = result.metrics.get("accuracy_per_class")
        if accuracy:
            rows = tables_of.setdefault(str(result.metrics.get("dataset")), {})
            rows.setdefault((provenance.label(result), result.scale), []).append(accuracy)
    made = []
    for dataset, rows in tables_of.items():
        classes = tuple(next(iter(rows.values()))[0])
        cells = [
            (*key, *(_mean([run.get(name) for run in runs]) for name in classes))
            for key, runs in rows.items()
        ]
        table = markup.table(("recipe", "scale", *classes), cells)
        made.append(markup.details(f"Accuracy of each class, {dataset}", table))
    return made


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3f}" if known else "–"
