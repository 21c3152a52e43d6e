"""`fernn table`, `fernn figure` and `fernn report`."""

from pathlib import Path
from typing import Annotated

import typer

from fernn.cli._app import app, console, drawing, say, writing
from fernn.experiments import lacking, render, results, runs, tables
from fernn.experiments.datasets import named_as_option
from fernn.experiments.devices import resolved
from fernn.experiments.progress import counting

Runs = Annotated[Path, typer.Option("--runs", help="Folder of all runs.")]
Scale = Annotated[str | None, typer.Option(help="paper, short or quick; without it, any.")]
Digits = Annotated[Path | None, typer.Option("--data", help="Folder with MNIST's files.")]
Clips = Annotated[Path | None, typer.Option("--clips", help="Archive of labelled clips.")]
Device = Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("table")
def table_command(
    number: Annotated[str, typer.Argument(metavar="N", help=", ".join(tables.KEYS))],
    folder: Runs = runs.RUNS,
    scale: Scale = None,
    as_json: AsJSON = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Print one of the paper's tables: its numbers beside ours."""
    found = _results(folder)
    key = number.removeprefix("table")
    made = tables.by_scale(key, found, scale=scale)
    if as_json:
        typer.echo(render.to_json(*made))
    elif markdown:
        typer.echo("\n".join(map(render.to_markdown, made)))
    else:
        for table in made:
            console.print(render.to_rich(table))
            if lost := [row.data for row in table.rows if not row.data.get("n", 1)]:
                what, at = (
                    ("what is missing", lost[0]["scale"]) if table.measured else ("it", scale)
                )
                names = (row["recipe"] for row in lost)
                say(f"to get {what}: {lacking.remedy(names, found, at)}")
        other = tables.stand_in(key, found)
        if other and not all(row.data["n"] for table in made for row in table.rows):
            say(lacking.instead("table", other, found))
        _print_left_out(found)


@app.command("figure")
def figure_command(
    number: Annotated[str, typer.Argument(metavar="N", help="2 to 15, or 8-actions.")],
    folder: Runs = runs.RUNS,
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf; default out/figureN.png.")
    ] = None,
    scale: Scale = None,
    data: Digits = None,
    clips: Clips = None,
    device: Device = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Draw runs trained so, with training.epochs=20 say. May be repeated."
        ),
    ] = None,
) -> None:
    """Draw one of the paper's figures from the records.

    It is of the recipes as they are, or, with --set as for `fernn train`, of those trained so.
    """
    from fernn.experiments import figures  # matplotlib takes a while to import

    number = number.removeprefix("figure").removeprefix("fig")
    found = _results(folder)
    path = figures.usual(number) if out is None else out
    sources = figures.Sources(data, clips, resolved(device))
    with drawing(path), named_as_option():
        lacks = figures.draw(
            number, found, path, scale=scale, sources=sources, settings=settings or ()
        )
    say(f"drawn to {path}")
    for line in lacks:
        say(line)
    _print_left_out(found)


@app.command("report")
def report_command(
    folder: Runs = runs.RUNS,
    out: Annotated[Path, typer.Option(help="The page to write.", dir_okay=False)] = Path(
        "out/report.html"
    ),
    data: Digits = None,
    clips: Clips = None,
    device: Device = "auto",
    forecasts: Annotated[
        bool, typer.Option(help="Run the kept models for strips and animations.")
    ] = True,
) -> None:
    """Write all that was measured into one HTML page."""
    from fernn.experiments import figures, report

    found = _results(folder)
    sources = figures.Sources(data, clips, resolved(device))
    with counting(console, even=False) as progress, writing(out), named_as_option():
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"`--out` must end with .html, got {str(out)!r}.")
        absent = report.write(out, found, sources=sources, forecasts=forecasts, progress=progress)
    count = len(found.every)
    say(
        f"{count} run{'s' * (count != 1)}, written to {out}"
        + (f"; {len(absent)} tables and figures have no results yet" if absent else "")
    )
    _print_left_out(found)


def _results(folder: Path) -> results.Results:
    """The results below a folder; a folder that is named must be there."""
    if folder != runs.RUNS and not folder.is_dir():
        raise FileNotFoundError(
            f"`--runs` must be a folder with runs, got {str(folder)!r}, which is no folder."
        )
    return results.load(folder)


def _print_left_out(found: results.Results) -> None:
    for reason in found.left_out:
        say(f"left out: {reason}")
