"""`fernn data fetch`, `fernn data prepare` and `fernn data show`."""

from pathlib import Path
from typing import Annotated

import typer

from fernn import data
from fernn.cli._app import app, console, say, writing
from fernn.experiments.datasets import named_as_option
from fernn.experiments.progress import counting
from fernn.flows import Rotation, Translation

data_app = typer.Typer(help="Fetch, prepare and look at datasets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

_SHOWN = ("translating-mnist", "rotating-mnist", "bouncing-mnist")


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist or kth.")],
    out: Annotated[Path, typer.Option(help="Folder to download to.", file_okay=False)] = Path(
        "data"
    ),
) -> None:
    """Download a dataset's official files, with checksums where there are any."""
    with counting(console) as progress, writing(out):
        folder = data.fetch(name, out, progress)
    say(f"{name} is in {folder}")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="kth.")],
    source: Annotated[Path, typer.Option(help="Folder with the videos and 00sequences.txt.")],
    out: Annotated[Path, typer.Option(help="Archive to write, an .npz file.")],
) -> None:
    """Turn official videos into one archive of small grey clips."""
    if name != "kth":
        raise typer.BadParameter(f"must be kth, got {name!r}.")
    with counting(console) as progress:
        summary = data.prepare_kth(source, out, progress)
    say(str(summary))


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
    if out.suffix in (".png", ".gif"):
        raise typer.BadParameter(f"--out must be a folder, for two pictures, got {out}.")
    with named_as_option():
        videos, classes = _dataset(name, source, split, seed)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    shown = range(0, len(videos), max(1, len(videos) // 8))[:8]  # spread, since clips are sorted
    batch = videos.batch(shown, epoch=0)
    for suffix, draw in (("png", data.contact_sheet), ("gif", data.animation)):
        path = out / f"{name}.{suffix}"
        draw(batch, path, title=f"{name}, {split}", classes=classes)
        say(f"drawn to {path}")


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
