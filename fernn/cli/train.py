"""`fernn list`, `fernn train` and `fernn reproduce`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import OutOfMemoryError

from fernn._nearest import nearest
from fernn.cli._app import app, console, say, writing
from fernn.cli._batch import Batch, Job
from fernn.cli._record import print_numbers
from fernn.experiments import progress, recipes, runs, search, tables
from fernn.experiments.devices import resolved

_STOPPED = 130  # what a shell reports of a program that Ctrl-C ended

# What `train` and `reproduce` both take.
_Scale = Annotated[
    str,
    typer.Option(
        help="paper, as published; short, ten epochs (clips fifty); quick, a small task for a CPU."
    ),
]
_Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
_Devices = Annotated[int, typer.Option(help="How many share every batch, on each machine.", min=1)]
_Nodes = Annotated[int, typer.Option(help="How many machines.", min=1)]
_Precision = Annotated[
    str, typer.Option(help="32-true, tf32, bf16-mixed, 16-mixed or 64-true; a run keeps its own.")
]
_Data = Annotated[
    Path | None, typer.Option(help="Folder with MNIST's files; scale quick needs none.")
]
_Clips = Annotated[
    Path | None, typer.Option(help="Archive of labelled clips, for recipes on clips.")
]
_Out = Annotated[Path, typer.Option(help="Folder of all runs, each in its own below it.")]
_MicroBatch = Annotated[
    int | None,
    typer.Option(help="Sequences on a device at once; the steps stay the same.", min=1),
]
_SaveMinutes = Annotated[float, typer.Option(help="Minutes between checkpoints.", min=0)]


@app.command("list")
def list_command(
    what: Annotated[str, typer.Argument(help="all, a name, or its first parts: table1.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the recipes: one for every row of every table and figure."""
    known = recipes.recipes()
    chosen = [known[name] for name in _names(what)]
    if as_json:
        typer.echo(json.dumps([recipes.to_json(recipe) for recipe in chosen], ensure_ascii=False))
        return
    where = None
    console.print(f"[dim]{'':<48} paper[/]", highlight=False)
    for recipe in chosen:
        paper = recipe.published
        if paper.where != where:
            where = paper.where
            console.print(f"[bold]{where}[/]", highlight=False, soft_wrap=True)
        spread = "" if paper.spread is None else f" ± {paper.spread:g}"
        value = "" if paper.mean is None else f"{paper.mean:g}{spread}"
        console.print(f"  {recipe.name:<46} {value}", highlight=False, soft_wrap=True)
    for ending, meaning in tables.VARIANTS.items():
        if any(ending in recipe.name for recipe in chosen):
            console.print(f"[dim]{meaning}[/]", highlight=False, soft_wrap=True)


@app.command("train")
def train_command(
    recipe: Annotated[str, typer.Argument(help="A name that `fernn list` shows.")],
    seed: Annotated[int, typer.Option(help="Decides first weights and training data.", min=0)] = 0,
    scale: _Scale = "paper",
    device: _Device = "auto",
    devices: _Devices = 1,
    nodes: _Nodes = 1,
    precision: _Precision = "32-true",
    data: _Data = None,
    clips: _Clips = None,
    out: _Out = runs.RUNS,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change one thing: key=value, such as training.epochs=3. May be repeated."
        ),
    ] = None,
    micro_batch: _MicroBatch = None,
    save_minutes: _SaveMinutes = 10.0,
) -> None:
    """Train a recipe, or go on where an interrupted run stopped.

    Ctrl-C saves, and the same command goes on; a finished run is not trained again. A recipe that
    is changed with --set has a folder of its own beside the plain one, and a row of its own in
    `fernn table`. A key that does not exist is answered with those that do.
    """
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
        print_numbers(record)
        folder = runs.folder(out, chosen, seed)
        say(f"in {folder}")


def run(recipe: recipes.Recipe, seed: int, out: Path, **options: Any) -> dict[str, Any] | None:
    """Train one run with a progress bar; Ctrl-C saves it and ends the program."""
    from fernn.experiments import train  # takes seconds to import, and few commands need it

    try:
        with progress.report_for(console) as report:
            return train.train(recipe, seed, out=out, report=report, **options)
    except (train.Interrupted, KeyboardInterrupt):  # the latter while it evaluates
        folder = runs.folder(out, recipe, seed)
        say(f"stopped; the same command goes on from {folder}")
        raise typer.Exit(_STOPPED) from None
    except (MemoryError, OutOfMemoryError) as error:
        raise ValueError(error) from None


@app.command()
def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Names, or their first parts: table1, table2/kth, …; else all."),
    ] = None,
    scale: _Scale = "paper",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds of each row, else as many as the paper took.", min=1)
    ] = None,
    device: _Device = "auto",
    devices: _Devices = 1,
    nodes: _Nodes = 1,
    precision: _Precision = "32-true",
    data: _Data = None,
    clips: _Clips = None,
    out: _Out = runs.RUNS,
    choose: Annotated[
        bool, typer.Option("--search", help="Choose each learning rate on validation first.")
    ] = False,
    micro_batch: _MicroBatch = None,
    save_minutes: _SaveMinutes = 10.0,
) -> None:
    """Train every row that is missing, one after the other; what is done is skipped.

    With --search, rows whose learning rate the paper searched for are trained at each of its rates,
    and the tables take the best by validation loss. A row that cannot be trained, for want of its
    data say, is named at the end. Several of these commands may share --out: each takes the runs
    that no other is training.
    """
    names = dict.fromkeys(name for part in what or ("all",) for name in _names(part))
    wanted = [recipes.find(name, scale) for name in names]
    resolved(device, devices, precision)  # what no run could be trained without
    lacking = _lacking(wanted, data, clips)
    jobs = [
        Job(recipe, trial, seed)
        for recipe in wanted
        for trial in (search.trials(recipe) if choose else (search.chosen(out, recipe) or recipe,))
        for seed in range(recipe.seeds if seeds is None else seeds)
    ]
    batch = Batch(run, out, jobs, searching=choose, alone=devices * nodes == 1)
    batch.leave_out(lacking)
    if batch.tells:
        with writing(out):  # once, not for each run
            out.mkdir(parents=True, exist_ok=True)
    batch.train(
        device=device,
        devices=devices,
        nodes=nodes,
        precision=precision,
        root=data,
        clips=clips,
        micro_batch=micro_batch,
        save_minutes=save_minutes,
    )
    if batch.tells:
        batch.choose(wanted if choose else ())
        batch.print_end()
    raise typer.Exit(1 if batch.failed else 0)


def _names(what: str) -> list[str]:
    """The recipe of this name, or all that lie below it, or all; else the nearest is suggested."""
    known = recipes.recipes()
    if what == "all":
        return [*known]
    below = f"{what.rstrip('/')}/"
    names = [name for name in known if f"{name}/".startswith(below)]
    if not names:
        parts = (name.split("/") for name in known)
        ways = dict.fromkeys("/".join(p[:count]) for p in parts for count in range(1, len(p) + 1))
        raise ValueError(
            "`what` must be all, a recipe's name or the first parts of one, such as table1 or "
            f"table2/kth, got {what!r}; see `fernn list`.{nearest(what, ways)}"
        )
    return names


def _lacking(
    wanted: Sequence[recipes.Recipe], data: Path | None, clips: Path | None
) -> dict[str, str]:
    """Why rows cannot be trained, by their names, for want of data; each need is looked at once.

    A path that is given and cannot be read is a mistake, and raises. One that is not given leaves
    rows out: no archive is that of all rows, so `reproduce all` cannot ask for it.
    """
    from fernn.experiments import datasets

    reasons: dict[tuple[Any, ...], str | None] = {}
    lacking = {}
    kinds = {recipe.data.kind for recipe in wanted}
    if data is not None and kinds != {"clips"}:
        datasets.check_digits(data)
    if clips is not None and "clips" in kinds:
        datasets.open_clips(clips)
    for recipe in wanted:
        need = recipe.data.archive, recipe.data.canvas
        if need not in reasons:
            try:
                datasets.source(recipe, data, datasets.clips(recipe, clips))
                reasons[need] = None
            except ValueError as error:
                reasons[need] = str(error)
        why = reasons[need]
        if why is not None:
            lacking[recipe.name] = why
    return lacking
