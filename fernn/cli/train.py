"""`fernn list`, `fernn train`, `fernn reproduce` and `fernn show`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fernn.cli._app import app, console
from fernn.experiments import progress, recipes, runs, search

_STOPPED = 130  # what a shell reports of a program that Ctrl-C ended


@app.command("list")
def list_command(
    start: Annotated[str, typer.Argument(help="Only names that begin so, such as table1.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the recipes: one for every row of every table and figure."""
    chosen = [recipe for name, recipe in recipes.recipes().items() if name.startswith(start)]
    if not chosen:
        raise ValueError(f"`start` must begin a recipe's name, got {start!r}; see `fernn list`.")
    if as_json:
        typer.echo(json.dumps([recipes.to_json(recipe) for recipe in chosen], ensure_ascii=False))
        return
    where = None
    for recipe in chosen:
        paper = recipe.published
        if paper.where != where:
            where = paper.where
            console.print(f"[bold]{where}[/]", highlight=False, soft_wrap=True)
        spread = "" if paper.spread is None else f" ± {paper.spread:g}"
        value = "" if paper.mean is None else f"{paper.mean:g}{spread}"
        console.print(f"  {recipe.name:<46} {value}", highlight=False, soft_wrap=True)


@app.command("train")
def train_command(
    recipe: Annotated[str, typer.Argument(help="A name that `fernn list` shows.")],
    seed: Annotated[int, typer.Option(help="Weights and training data.", min=0)] = 0,
    scale: Annotated[str, typer.Option(help="paper, short or quick.")] = "paper",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(help="How many, on each machine.", min=1)] = 1,
    nodes: Annotated[int, typer.Option(help="How many machines.", min=1)] = 1,
    precision: Annotated[
        str, typer.Option(help="32-true, tf32, bf16-mixed, 16-mixed or 64-true.")
    ] = "32-true",
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's files.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Archive of labelled clips.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = runs.RUNS,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as training.epochs=3.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Sequences on a device at once; the steps stay the same.")
    ] = None,
    save_minutes: Annotated[float, typer.Option(help="Between checkpoints.", min=0)] = 10.0,
) -> None:
    """Train a recipe, or go on where an interrupted run stopped."""
    chosen = recipes.changed(recipes.find(recipe, scale), settings or ())
    record = run(
        chosen,
        seed,
        out,
        device=device,
        devices=devices,
        nodes=nodes,
        precision=precision,
        root=data,
        clips=clips,
        micro_batch=micro_batch,
        save_minutes=save_minutes,
    )
    if record is not None:
        _print_record(runs.folder(out, chosen, seed), record)


def run(recipe: recipes.Recipe, seed: int, out: Path, **options: Any) -> dict[str, Any] | None:
    """Train one run with a progress bar; Ctrl-C saves it and ends the program."""
    from fernn.experiments import train  # takes seconds to import, and few commands need it

    try:
        with progress.report_for(console) as report:
            return train.train(recipe, seed, out=out, report=report, **options)
    except (train.Interrupted, KeyboardInterrupt):  # the latter while it evaluates
        folder = runs.folder(out, recipe, seed)
        console.print(f"stopped; the same command goes on from {folder}", soft_wrap=True)
        raise typer.Exit(_STOPPED) from None
    except MemoryError as error:
        raise ValueError(error) from None


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(help="all, or how names begin: table1, fig6, …")] = "all",
    scale: Annotated[str, typer.Option(help="paper, short or quick.")] = "paper",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each row, else as many as the paper took.", min=1)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="As of `fernn train`.")] = "32-true",
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's files.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Archive of labelled clips.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of all runs.")] = runs.RUNS,
    choose: Annotated[
        bool, typer.Option("--search", help="Choose each learning rate on validation first.")
    ] = False,
) -> None:
    """Train every row that is missing, one after the other; what is done is skipped.

    With --search, rows whose learning rate the paper searched for are trained at each of its rates,
    and the tables take the best by validation loss. A row that cannot be trained, for want of its
    data say, is named at the end.
    """
    names = [name for name in recipes.recipes() if what == "all" or name.startswith(what)]
    if not names:
        raise ValueError(
            f"`what` must be all or begin a recipe's name, got {what!r}; see `fernn list`."
        )
    from fernn.experiments.train import DivergedError

    wanted = [recipes.find(name, scale) for name in names]
    jobs = [
        (recipe, trial, seed)
        for recipe in wanted
        for trial in (search.trials(recipe) if choose else (search.chosen(out, recipe) or recipe,))
        for seed in range(recipe.seeds if seeds is None else seeds)
    ]
    failed: dict[str, str] = {}
    losses: dict[str, dict[float, list[float | None]]] = {}
    options = {"device": device, "precision": precision, "root": data, "clips": clips}
    for number, (recipe, trial, seed) in enumerate(jobs, start=1):
        rate = trial.training.learning_rate
        label = f"{recipe.name}, seed {seed}" + f", learning rate {rate:g}" * choose
        console.print(f"[bold]{number} of {len(jobs)}: {label}[/]", highlight=False)
        seen = losses.setdefault(recipe.name, {}).setdefault(rate, [])
        try:
            record = run(trial, seed, search.place(out, recipe, trial), **options)
            assert record is not None  # one process is the first of all
            seen.append(record["val_loss"])
        except (ValueError, OSError) as error:
            if choose and isinstance(error, DivergedError):
                seen.append(None)  # a rate that is too high is a result of the search
                console.print(f"{label} diverged", highlight=False)
            else:
                failed[label] = str(error)
    console.print(f"{len(jobs) - len(failed)} of {len(jobs)} runs are done, in {out}")
    for recipe in wanted if choose else ():
        if any(label.startswith(f"{recipe.name},") for label in failed) or not recipe.rates:
            continue
        try:
            rate = search.choose(out, recipe, losses[recipe.name])["learning_rate"]
            console.print(f"{recipe.name}: learning rate {rate:g} is the best on validation")
        except ValueError as error:
            failed[recipe.name] = str(error)
    for label, why in failed.items():
        console.print(f"not done: {label}: {why}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1 if failed else 0)


@app.command()
def show(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show one run: its recipe, how far it is, and what it measured."""
    recipe = runs.read_recipe(run)
    console.print(
        f"{recipe.name}, {recipe.scale}: {recipe.published.where}, {recipe.published.row}"
    )
    console.print(f"{recipe.model}({_arguments(recipe.options)})", markup=False, highlight=False)
    console.print(f"{recipe.data}\n{recipe.training}", markup=False, highlight=False)
    record, curve = runs.read_record(run), runs.read_curve(run)
    if curve:
        best = min(curve, key=lambda line: line["val_loss"])
        console.print(
            f"{len(curve)} of {recipe.training.epochs} epochs, val loss {best['val_loss']:.3e} at "
            f"epoch {best['epoch']}"
        )
    if record is None:
        console.print("not finished")
    else:
        _print_record(run, record)


def _arguments(options: Any) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _print_record(folder: Path, record: dict[str, Any]) -> None:
    """One line a number."""
    table, speed = Table(box=None, show_header=False), record["sequences_per_second"]
    rows = {
        "epochs": f"{record['epochs']}, best {record['best_epoch']}",
        "val loss": f"{record['val_loss']:.3e}",
        **{
            name.replace("_", " "): f"{value:.4g}"
            for name, value in record["metrics"].items()
            if isinstance(value, int | float)
        },
        "parameters": f"{record['parameters']:,}",
        "training": f"{record['wall_seconds']:.0f} s, {speed:.1f} sequences/s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    console.print(f"in {folder}", soft_wrap=True, highlight=False)
