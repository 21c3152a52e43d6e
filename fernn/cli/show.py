"""`fernn show`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fernn import models
from fernn._nearest import nearest
from fernn.cli._app import app, say
from fernn.cli._record import print_numbers
from fernn.experiments import checkpoint, recipes, runs


@app.command()
def show(
    what: Annotated[
        str,
        typer.Argument(metavar="RUN|NAME", help="The folder of a run, or pretrained weights."),
    ],
) -> None:
    """Show one run: its recipe, the command that trains it, how far it is, and what it measured.

    Of pretrained weights it shows the run that made them; of a folder above several runs, which.
    """
    run = Path(what)
    if what in models.pretrained():
        record = models.pretrained_record(what)
        _print_finished(recipes.from_json(record["recipe"]), record)
        say(f'in the package: fernn.load_pretrained("{what}")')
    elif not runs.is_run(run):
        _list(run)
    elif (finished := runs.read_record(run)) is not None:
        _print_finished(runs.read_recipe(run), finished)
        say(f"in {run}")
    else:
        _print_unfinished(run)


def _print_finished(recipe: recipes.Recipe, record: dict[str, Any]) -> None:
    say(*_about(recipe), *_epochs(recipe, record["curve"]))
    say(*_trained_by(recipe, record["seed"], record, record.get("data")))
    print_numbers(record)


def _print_unfinished(run: Path) -> None:
    recipe, kept = runs.read_recipe(run), checkpoint.newest_state(run / runs.CHECKPOINTS)
    say(*_about(recipe), *_epochs(recipe, runs.read_curve(run)))
    if kept is None:
        say("not finished, and nothing is saved yet")
    else:
        say(f"not finished: saved at step {kept['step']}; the same command goes on from there")
    place = runs.placed(run, recipe)
    if place is not None:  # elsewhere no command goes on with it
        state, (out, seed) = kept or {}, place
        say(*_trained_by(recipe, seed, state, state.get("source"), out))


def _list(folder: Path) -> None:
    """Name the runs below a folder, as this command takes them."""
    found, names = runs.below(folder), models.pretrained()
    if not found:
        raise FileNotFoundError(
            f"`run` must be a folder that `fernn train` made, one above such folders, or one of "
            f"{', '.join(names)}, got {str(folder)!r}.{nearest(str(folder), names)}"
        )
    say(f"{len(found)} run{'s' * (len(found) != 1)} below {folder}; `fernn show` takes one:")
    for run in found:
        say(f"{run}" + "  not finished" * (not (run / runs.RECORD).is_file()))


def _about(recipe: recipes.Recipe) -> list[str]:
    """What the run is of, and what was changed in it."""
    paper, plain = recipe.published, recipes.original(recipe)
    lines = [f"{recipe.name}, {recipe.scale}: {paper.where}, {paper.row}"]
    changed = () if plain is None else recipes.changes(recipe, plain)
    lines += [f"changed: {', '.join(changed)}"] if changed else []
    arguments = ", ".join(f"{name}={value!r}" for name, value in recipe.options.items())
    return [*lines, f"{recipe.model}({arguments})", str(recipe.data), str(recipe.training)]


def _epochs(recipe: recipes.Recipe, curve: list[dict[str, Any]]) -> list[str]:
    """How far it is, and its best validation."""
    losses = {line["epoch"]: line["val_loss"] for line in curve if line["val_loss"] is not None}
    if not losses:
        return []
    best = min(losses, key=lambda epoch: losses[epoch])
    whole = recipe.training.epochs
    return [f"{len(curve)} of {whole} epochs, val loss {losses[best]:.3e} at epoch {best}"]


def _trained_by(
    recipe: recipes.Recipe,
    seed: int,
    state: dict[str, Any],
    source: str | None,
    out: Path = runs.RUNS,
) -> list[str]:
    """The command that trains it, where one does."""
    micro, batch = state.get("micro_batch"), recipe.training.batch_size
    parts = micro if micro and micro * state.get("processes", 1) < batch else None
    line = runs.command(
        recipe,
        seed,
        precision=state.get("precision"),
        source=source,
        micro_batch=parts,  # batch-norm sees them
        out=out,
    )
    return [] if line is None else [f"command: {line}"]
