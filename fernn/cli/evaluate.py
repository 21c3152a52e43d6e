"""`fernn evaluate`."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import nn

from fernn import models
from fernn.cli._app import app, console, say
from fernn.cli._kept import kept
from fernn.experiments import datasets
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
    that their record lists one by one, made of the digits inside the package. Ends with status 1
    where they differ, but with --json, which leaves that to its reader.
    """
    named = what in models.pretrained()
    few = named and data is None
    model, recipe, record = _pretrained(what) if named else kept(Path(what))
    where = resolved(device)
    with counting(Console(stderr=True)) as progress:
        if few:
            recorded = {key: record["check"][key] for key in ("mean", "sequence_mse")}
            count = len(recorded["sequence_mse"])
            errors = sequence_errors(model, recipe, count, device=where, progress=progress)
            metrics: dict[str, Any] = {"mean": fmean(errors), "sequence_mse": errors}
        else:
            recorded = record.get("metrics", {})
            archive = datasets.clips(recipe, clips)
            datasets.source(recipe, data, archive)  # raises where the test digits are not at hand
            learned = record.get("data_sha256")
            if archive is not None and learned not in (None, archive.sha256):
                raise ValueError(
                    f"`--clips` must be the archive that {what} learned from, whose SHA-256 is "
                    f"{learned}, got {archive.name!r} with {archive.sha256}."
                )
            metrics = evaluate(
                model, recipe, device=where, root=data, archive=archive, progress=progress
            )
    if as_json:
        found = {"measured": metrics, "recorded": recorded}
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    rows = _rows_of_few(metrics, recorded, record["metrics"]) if few else _rows(metrics, recorded)
    table = Table("", "measured", "recorded", box=None)
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=max(_WIDTH, console.width)).print(table)
    line = agreement(metrics, recorded)
    if line is not None:
        say(line)
    if few:
        say(
            "the first sequences are made of the digits inside the package; --data FOLDER, with "
            "MNIST's files, measures all of the test split again"
        )
    if line is not None and line.startswith("differs"):
        raise typer.Exit(1)


def _rows(metrics: dict[str, Any], recorded: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A row a metric: its name, what was measured, and what is recorded."""
    for name, value in metrics.items():
        yield name.replace("_", " "), _summary(value), _summary(recorded.get(name, "–"))


def _rows_of_few(
    metrics: dict[str, Any], recorded: dict[str, Any], whole: dict[str, Any]
) -> Iterator[tuple[str, ...]]:
    """Those of the first sequences, whose mean is not that of the whole split: it comes last."""
    count, every, both = len(metrics["sequence_mse"]), whole["sequences"], (metrics, recorded)
    yield f"MSE, first {count} test sequences", *(_summary(of["mean"]) for of in both)
    yield "lowest to highest of them", *(_span(of["sequence_mse"]) for of in both)
    yield f"MSE, all {every['test']:,} test sequences", "needs --data", _summary(whole["test_mse"])


def _pretrained(name: str) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    record = models.pretrained_record(name)
    return models.load_pretrained(name), from_json(record["recipe"]), record


def _summary(value: object) -> str:
    """A metric in one line; the whole of a long one is in the JSON."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_summary(item)}" for name, item in value.items())
    if isinstance(value, list) and value and isinstance(value[0], float | None):
        return f"{_summary(value[0])} at step 1, {_summary(value[-1])} at step {len(value)}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{_span([item['mse'] for item in value])} over {len(value)} velocities"
    return "not finite" if value is None else str(value)


def _span(errors: list[float | None]) -> str:
    finite = [error for error in errors if error is not None]
    return f"{min(finite):.3g} to {max(finite):.3g}" if finite else "not finite"
