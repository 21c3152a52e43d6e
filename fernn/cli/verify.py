"""`fernn verify`."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from fernn import models
from fernn._nearest import nearest
from fernn._report import Report, paint
from fernn.cli._app import app, console, drawing, say
from fernn.cli._kept import kept
from fernn.experiments import pretrained, records, runs, steering, verification
from fernn.experiments.progress import counting
from fernn.experiments.recipes import Recipe, from_json
from fernn.flows import Flow, Rotation, Translation
from fernn.verify import TOLERANCES

Result = TypeVar("Result")
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in TOLERANCES}
_COLOURS = {"exact": "green", "interpolated": "yellow"}
_WIDTH = 144  # of the table: a narrower screen wraps it, which beats cutting numbers off
_PANEL = (5.5, 4.0)  # inches: a row has room for two


@app.command("verify")
def verify_command(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|RUN|NAME|pretrained",
            help="A model that fernn.save wrote, the folder of a run, or pretrained weights: one "
            "by its name, or all.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float64, float32, float16 or bfloat16.")] = "float64",
    steps: Annotated[int, typer.Option(help="Frames to run.", min=2)] = 7,
    radius: Annotated[int, typer.Option(help="For a model at rest: the V to try it on.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the errors to this image.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Of a table: write the errors to this JSON file.")
    ] = None,
) -> None:
    """Measure how flow equivariant a model is; without an argument, every model on every flow.

    Exits with 1 where its recurrence or, under translation on a closed V, its output was not found
    to be, and of a table where a verdict is not the theory's.
    """
    if what in (None, "pretrained"):
        _refuse(context, "dtype", "steps", "radius", "plot")
    if what is None:
        raise typer.Exit(1 if print_all(record) else 0)
    if what == "pretrained":
        raise typer.Exit(1 if print_pretrained(record) else 0)
    if record is not None:
        raise typer.BadParameter("--record is for tables: give no model, or `pretrained`.")
    if dtype not in _DTYPES:
        raise typer.BadParameter(f"--dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}.")
    with nullcontext() if plot is None else drawing(plot, "--plot"):
        raise typer.Exit(0 if _verify(what, dtype, steps, radius, plot) else 1)


def _refuse(context: typer.Context, *options: str) -> None:
    """Raise where an option was given that tables do not take."""
    for name in options:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise typer.BadParameter(
                f"--{name} is for one model: give a file, a run, or one of "
                f"{', '.join(models.pretrained())}."
            )


def _verify(what: str, dtype: str, steps: int, radius: int, plot: Path | None) -> bool:
    """Print the reports of one model, and draw them; return whether both pass, the second where
    it can: translations on a closed V."""
    model, recipe = _load(what)
    if isinstance(model, models.CNN3D):
        raise typer.BadParameter(f"{what} holds a {type(model).__name__}, which has no flow.")
    assert isinstance(model, models.Forecaster | models.SequenceForecaster | models.Classifier)
    flow = model.flow if len(model.flow) > 1 else _widened(model.flow, radius)
    how: Any = {"steps": steps, "dtype": _DTYPES[dtype]}
    with console.status("verifying"):
        report = pretrained.of_states(model, recipe, flow, **how)
    print("The recurrence inside, by its lifted states:")
    print(report)
    with console.status("verifying"):
        through = pretrained.of_whole(model, recipe, flow, **how)
    closed = through.flow
    group = isinstance(closed, Translation) and closed.closed is not None
    own_v = "on its own V, which is closed" if group else "on its own V, so not exact"
    where = own_v if closed == flow else "with the same weights on a closed V"
    print(f"\nThe whole model, which pools over V, {where}:")
    print(through)
    if plot is not None:
        _draw({"The recurrence inside": report, "The whole model": through}, plot)
        say(f"errors drawn to {plot}")
    if report.verdict not in _COLOURS:
        return False
    if through.verdict == "broken" and group:
        print("\nSo its recurrence is flow equivariant, and what comes out of the model is not.")
        if getattr(model, "readout", None) == "published":
            print("That is the published readout; a Forecaster with readout='transported' is.")
    elif through.verdict == "broken" and isinstance(closed, Rotation):
        print("\nSo it must be: its decoder is of ordinary convolutions, which do not turn.")
    return through.verdict in _COLOURS or not group


def _draw(reports: dict[str, Report], path: Path) -> None:
    """Draw reports side by side, under their names."""
    from fernn.experiments.figures import Panel, compose, save

    panels = [Panel(name, partial(paint, made), size=_PANEL) for name, made in reports.items()]
    save(compose(panels), path)


def print_all(record: Path | None = None) -> int:
    """Print the table of errors, and record it; return how many verdicts differ from the theory."""
    table = Table(
        title="Relative error of flow equivariance, where ν − ν̂ ∈ V", title_justify="left"
    )
    for name in ("flow", "model"):
        table.add_column(name, no_wrap=True)
    for name in ("float64", "trained", "float32", "bfloat16", "all of V", "interpolation"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    chosen = verification.cases()
    wrong, rows = 0, []
    for result in _counted(verification.run(chosen), len(chosen)):
        numbers, verdict = result.numbers(), result.float64.verdict
        wrong += not result.as_expected
        rows.append(
            {"flow": result.case.flow_name, "model": result.case.model_name}
            | numbers
            | {"verdict": verdict}
        )
        table.add_row(
            result.case.flow_name,
            result.case.model_name,
            *map(_error, numbers.values()),
            _coloured(verdict),
        )
    if record is not None:
        measured = {"seed": 0, "rows": rows, "steering": steering.steering(seed=0)}
        records.write(record, {"environment": records.environment()} | measured)
    Console(width=max(_WIDTH, console.width)).print(table)
    console.print(
        "trained: float64 after five steps of Adam. all of V: slices whose ν − ν̂ leaves V count "
        "as wrong.\ninterpolation: what moving input and output there and back loses by itself."
    )
    _print_verdict(wrong)
    return wrong


def print_pretrained(record: Path | None = None) -> int:
    """Print how flow equivariant training left the pretrained weights, and record it; return how
    many verdicts differ from the theory."""
    table = Table(title="Relative error of flow equivariance after training", title_justify="left")
    for name in ("weights", "flow"):
        table.add_column(name, no_wrap=True)
    for name in ("float64", "float32", "interpolation", "forecast"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdicts", no_wrap=True)
    names = models.pretrained()
    wrong, rows = 0, []
    for result in _counted(pretrained.verified(), len(names)):
        row = result.row()
        wrong += not result.as_expected
        rows.append(row)
        numbers = (row[name] for name in ("float64", "float32", "interpolation", "forecast"))
        table.add_row(
            result.name,
            repr(result.states.flow),
            *map(_error, numbers),
            ", ".join(_coloured(report.verdict) for report in (result.states, result.forecast)),
        )
    if record is not None:
        records.write(record, {"environment": records.environment(), "seed": 0, "rows": rows})
    Console(width=max(_WIDTH, console.width)).print(table)
    console.print(
        "float64, float32: the states where ν − ν̂ ∈ V. forecast: the whole model in float64, on "
        "a closed V.\nverdicts: of the states, of the forecast."
    )
    _print_verdict(wrong)
    return wrong


def _counted(results: Iterator[Result], total: int) -> Iterator[Result]:
    """The results as they come, told of as they come."""
    with counting(Console(stderr=True), even=False) as tell:
        tell(0, total, f"verifying 1 of {total}")
        for done, result in enumerate(results, start=1):
            yield result
            tell(done, total, f"verifying {min(done + 1, total)} of {total}")


def _error(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def _coloured(verdict: str) -> str:
    return f"[{_COLOURS.get(verdict, 'red')}]{verdict}[/]"


def _print_verdict(wrong: int) -> None:
    expected = "every verdict is as the theory says"
    console.print(expected if wrong == 0 else f"[red]{wrong} verdicts differ from the theory[/]")


def _load(what: str) -> tuple[nn.Module, Recipe | None]:
    """The model of this name, kept by a run or in a file, and its recipe where there is one."""
    names, path = models.pretrained(), Path(what)
    if what in names:
        return models.load_pretrained(what), from_json(models.pretrained_record(what)["recipe"])
    if runs.is_run(path):
        return kept(path)[:2]
    if not path.is_file():
        raise FileNotFoundError(
            f"`model` must be a file that fernn.save wrote, the folder of a run with {runs.BEST} "
            f"or one of {', '.join(names)}, got {str(path)!r}.{nearest(str(path), names)}"
        )
    return models.load(path), None


def _widened(flow: Flow, radius: int) -> Flow:
    """The flow to try a model at rest on: its own kind, with velocities up to `radius`."""
    if isinstance(flow, Rotation):
        return Rotation(count=radius, group=flow.group)
    return Translation(radius=radius, dim=flow.group.dim)
