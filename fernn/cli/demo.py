"""`fernn demo`: the theorem, the counter-example, pretrained forecasts, and the quick Table 1."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from fernn.cli._app import app, console, say, writing
from fernn.cli.train import run
from fernn.cli.verify import print_all
from fernn.experiments import counterexample, recipes, render, results, tables
from fernn.experiments.progress import counting

ROWS = (
    "table1/translation/grnn-transported",
    "table1/translation/fernn-v2-transported",
    "table1/rotation/grnn-comoving-transported",
    "table1/rotation/fernn-v4-comoving-transported",
)
"""Table 1 in small: a G-RNN and a FERNN on either flow, with the same number of sequences."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs and pictures.")] = Path("out/demo"),
) -> None:
    """Verify every model, forecast with pretrained ones, train the quick Table 1 from scratch, and
    write the report.

    A demo that was stopped goes on where it was; remove the folder to begin anew.
    """
    with writing(out):  # now, not after the minute that the verification takes
        out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    wrong = print_all()
    from fernn.experiments import figures, report, showcase, strips  # these take a while to import

    picture = out / "counterexample.png"
    figures.save(counterexample.drawn(counterexample.counterexample()), picture)
    say(f"\ncounter-example drawn to {picture}\n")
    names = track(showcase.PAIR, "forecasting", console=console, transient=True)
    shown = showcase.forecast(names)
    panel = showcase.panel(shown)
    showcase.draw(shown, out / "forecast.png")
    strips.animation(shown, out / "forecast.gif")
    say(f"{panel.title} by pretrained models, drawn to {out / 'forecast.gif'} and .png")
    console.print(f"{panel.note}\n", highlight=False)
    folder = out / "runs"
    for number, name in enumerate(ROWS, start=1):
        console.print(f"[bold]training {number} of {len(ROWS)}: {name}[/]", highlight=False)
        run(recipes.find(name, "quick"), 0, folder, device="cpu")
    found = results.load(folder)
    console.print(render.to_rich(tables.table("1", found, scale="quick")))
    page = out / "report.html"
    with counting(console, even=False) as progress:
        report.write(page, found, sources=figures.Sources(), pretrained=shown, progress=progress)
    seconds = time.perf_counter() - begun
    say(f"report written to {page} ({seconds:.0f} s in all)")
    raise typer.Exit(1 if wrong else 0)
