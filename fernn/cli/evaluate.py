"""`fernn evaluate`."""

import json
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from fernn import models
from fernn._nearest import nearest
from fernn.cli._app import app, console
from fernn.experiments import datasets, results, runs
from fernn.experiments.agreement import agreement
from fernn.experiments.devices import resolved
from fernn.experiments.evaluate import evaluate, sequence_errors
from fernn.experiments.progress import counting
from fernn.experiments.recipes import Recipe, from_json

_WIDTH = 120  # of the table: a narrower screen wraps it, which beats cutting numbers off


@app.command("evaluate")
def evaluate_command(
    what: Annotated[
        str, typer.Argument(metavar="RUN|NAME", help="The folder of a run, or pretrained weights.")
    ],
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's files.")] = None,
    clips: Annotated[Path | None, typer.Option(help="Archive of labelled clips.")] = None,
    device: Annotated[str, typer.Option(help="Where the model runs: auto, cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a model on its test split, beside what its record says, and whether they agree.

    Pretrained weights take the whole test split with --data. Without it they take the sequences
    that their record lists one by one, made of the digits inside the package.
    """
    named = what in models.pretrained()
    model, recipe, record = _pretrained(what) if named else _kept(Path(what))
    where = resolved(device)
    with counting(Console(stderr=True)) as progress:
        if named and data is None:
            recorded = {key: record["check"][key] for key in ("mean", "sequence_mse")}
            count = len(recorded["sequence_mse"])
            errors = sequence_errors(model, recipe, count, device=where, progress=progress)
            metrics: dict[str, Any] = {"mean": fmean(errors), "sequence_mse": errors}
        else:
            recorded = record.get("metrics", {})
            archive = datasets.clips(recipe, clips)
            datasets.source(recipe, data, archive)  # raises where the test digits are not at hand
            metrics = evaluate(
                model, recipe, device=where, root=data, archive=archive, progress=progress
            )
    if as_json:
        found = {"measured": metrics, "recorded": recorded}
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    table = Table("", "measured", "recorded", box=None)
    for name, value in metrics.items():
        both = (_summary(value), _summary(recorded.get(name, "–")))
        table.add_row(name.replace("_", " "), *map(escape, both))
    Console(width=max(_WIDTH, console.width)).print(table)
    lines = [line] if (line := agreement(metrics, recorded)) else []
    if named and data is None:
        lines.append(
            f"MSE of the first {len(metrics['sequence_mse'])} test sequences of the digits inside "
            "the package; --data takes the whole test split"
        )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _pretrained(name: str) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    record = models.pretrained_record(name)
    return models.load_pretrained(name), from_json(record["recipe"]), record


def _kept(run: Path) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    """The model that a run kept, its recipe, and its record, empty before it has finished."""
    if not any((run / name).is_file() for name in (runs.RECIPE, runs.RECORD)):
        names = models.pretrained()
        raise FileNotFoundError(
            f"`run` must be a folder that `fernn train` made or one of {', '.join(names)}, got "
            f"{str(run)!r}.{nearest(str(run), names)}"
        )
    record = runs.read_record(run)
    if not (run / runs.BEST).is_file():
        why = "has it finished an epoch?"
        if record is not None:
            why = "a record alone, which `fernn show` prints."
            name = results.published(record)
            why += f" Its weights are in the package: `fernn evaluate {name}`." if name else ""
        raise FileNotFoundError(
            f"`run` must have weights, got {str(run)!r} without {runs.BEST}: {why}"
        )
    model = models.load(run / runs.BEST).float()  # as a run evaluates it
    return model, runs.read_recipe(run), record or {}


def _summary(value: object) -> str:
    """A metric in one line; the whole of a long one is in the JSON."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_summary(item)}" for name, item in value.items())
    if isinstance(value, list) and value and isinstance(value[0], float | None):
        return f"{_summary(value[0])} first, {_summary(value[-1])} last of {len(value)}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        errors = [item["mse"] for item in value if item["mse"] is not None]
        span = f"{min(errors):.3g} to {max(errors):.3g}" if errors else "not finite"
        return f"{span} over {len(value)} velocities"
    return "not finite" if value is None else str(value)
