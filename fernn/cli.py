"""`fernn …` on the command line: thin, everything it does is a function of the library."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
    from rich.progress import Progress, track
    from rich.table import Table
except ImportError:
    sys.exit("The fernn command needs its extra: pip install 'fernn[experiments]'.")


from fernn import data, models
from fernn.experiments import counterexample as counter
from fernn.experiments import records, verification
from fernn.flows import Flow, Rotation, Translation
from fernn.verify import TOLERANCES, sample_video, verify

app = typer.Typer(
    help="Flow-equivariant sequence models: verify them, and see the data they are tried on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Fetch, prepare and look at datasets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
console = Console()

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in TOLERANCES}
_SHOWN = ("translating-mnist", "rotating-mnist", "bouncing-mnist")
_COLOURS = {"exact": "green", "interpolated": "yellow", "broken": "red"}


@app.command("verify")
def verify_command(
    file: Annotated[Path | None, typer.Argument(help="A model that fernn.save wrote.")] = None,
    dtype: Annotated[str, typer.Option(help="float64, float32, float16 or bfloat16.")] = "float64",
    steps: Annotated[int, typer.Option(help="Frames to run.", min=2)] = 7,
    radius: Annotated[int, typer.Option(help="For a model at rest: the V to try it on.")] = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the errors to this image.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Without FILE: write the errors to this JSON file.")
    ] = None,
) -> None:
    """Measure how flow equivariant a saved model is; without FILE, every model on every flow."""
    if file is None:
        raise typer.Exit(1 if _print_all(record) else 0)
    if dtype not in _DTYPES:
        raise typer.BadParameter(f"must be one of {', '.join(_DTYPES)}, got {dtype!r}.")
    model = models.load(file)
    if not isinstance(model, models.Forecaster | models.Classifier):
        raise typer.BadParameter(f"{file} holds a {type(model).__name__}, which has no flow.")
    flow = model.flow if len(model.flow) > 1 else _widened(model.flow, radius)
    video = sample_video(flow, steps=steps, channels=model.rnn.in_channels)
    # A forecaster is judged by its lifted states, a classifier by its logits.
    judged = model.rnn if isinstance(model, models.Forecaster) else model
    report = verify(judged, video, flow, dtype=_DTYPES[dtype])
    console.print(str(report), markup=False, highlight=False)
    if plot is not None:
        report.plot(plot)
        console.print(f"errors drawn to {plot}")
    raise typer.Exit(1 if report.verdict == "broken" else 0)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo"),
) -> None:
    """Verify every model on every flow, and draw the paper's counter-example."""
    begun = time.perf_counter()
    wrong = _print_all()
    picture = out / "counterexample.png"
    counter.draw(counter.counterexample(), picture)
    console.print(f"\ncounter-example drawn to {picture} ({time.perf_counter() - begun:.0f} s)")
    raise typer.Exit(1 if wrong else 0)


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist or kth.")],
    out: Annotated[Path, typer.Option(help="Folder to download to.")] = Path("data"),
) -> None:
    """Download a dataset's official files, with checksums where there are any."""
    with _progress() as progress:
        folder = data.fetch(name, out, progress)
    console.print(f"{name} is in {folder}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="kth.")],
    source: Annotated[Path, typer.Option(help="Folder with the videos and 00sequences.txt.")],
    out: Annotated[Path, typer.Option(help="Archive to write, an .npz file.")],
) -> None:
    """Turn official videos into one archive of small grey clips."""
    if name != "kth":
        raise typer.BadParameter(f"must be kth, got {name!r}.")
    with _progress() as progress:
        summary = data.prepare_kth(source, out, progress)
    console.print(str(summary), markup=False, highlight=False)


@data_app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"{', '.join(_SHOWN)} or clips.")],
    source: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with MNIST's files, or an archive for clips."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "train",
    seed: Annotated[int, typer.Option(help="Which sequences to draw.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("out"),
) -> None:
    """Draw a dataset: a contact sheet (PNG) and an animation (GIF)."""
    videos, classes = _dataset(name, source, split, seed)
    out.mkdir(parents=True, exist_ok=True)
    shown = range(0, len(videos), max(1, len(videos) // 8))[:8]  # spread, since clips are sorted
    batch = videos.batch(shown, epoch=0)
    for suffix, draw in (("png", data.contact_sheet), ("gif", data.animation)):
        path = out / f"{name}.{suffix}"
        draw(batch, path, title=f"{name}, {split}", classes=classes)
        console.print(f"drawn to {path}")


def _dataset(
    name: str, source: Path | None, split: str, seed: int
) -> tuple[data.Videos, tuple[str, ...] | None]:
    """A dataset by its name on the command line, and the names of its classes."""
    flow = Translation(radius=2)
    if name == "translating-mnist":
        return data.FlowingMNIST(flow, split, root=source, seed=seed), None
    if name == "rotating-mnist":
        return data.FlowingMNIST(Rotation(count=4), split, root=source, seed=seed), None
    if name == "bouncing-mnist":
        return data.BouncingMNIST(flow, split, root=source, seed=seed), None
    if name != "clips":
        raise typer.BadParameter(f"must be one of {', '.join(_SHOWN)}, clips, got {name!r}.")
    if source is None:
        raise typer.BadParameter("clips need --data FILE, an archive of labelled clips.")
    archive = data.ClipArchive.load(source)
    return data.MovingClips(archive, flow, split, seed=seed), archive.classes


@contextmanager
def _progress() -> Iterator[data.Progress]:
    """A progress bar as a callback: done, total (0 where unknown) and what is being done."""
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield report


def _print_all(record: Path | None = None) -> int:
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
    results = track(
        verification.run(chosen), "verifying", total=len(chosen), console=console, transient=True
    )
    wrong, rows = 0, []
    for result in results:
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
            *(f"{value:.1e}" if value else "0" for value in numbers.values()),
            f"[{_COLOURS[verdict]}]{verdict}[/]",
        )
    if record is not None:
        records.write(record, {"environment": records.environment(), "seed": 0, "rows": rows})
    console.print(table)
    console.print(
        "trained: float64 after five steps of Adam. all of V: slices whose ν − ν̂ leaves V count "
        "as wrong.\ninterpolation: what moving input and output there and back loses by itself."
    )
    expected = "every verdict is as the theory says"
    console.print(expected if wrong == 0 else f"[red]{wrong} verdicts differ from the theory[/]")
    return wrong


def _widened(flow: Flow, radius: int) -> Flow:
    """The flow to try a model at rest on: its own kind, with velocities up to `radius`."""
    if isinstance(flow, Rotation):
        return Rotation(count=radius, group=flow.group)
    return Translation(radius=radius, dim=flow.group.dim)


def main() -> None:
    """Run the command line; a bad value or a missing file is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
