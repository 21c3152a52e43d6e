"""The application that commands add themselves to, and where they print."""

import inspect
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import fernn

app = typer.Typer(
    help="Flow-equivariant sequence models: verify them, train them, and reproduce the paper.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version, and end.")] = False,
) -> None:
    if version:
        typer.echo(f"fernn {fernn.__version__}")
        raise typer.Exit


def say(*lines: str) -> None:
    """Print lines as they are: a path may hold what rich takes for markup."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def writing(out: Path, option: str = "--out") -> Iterator[None]:
    """Errors of the disk at or above `out` speak of what a user typed, those of its place at once:
    what is to be written there may take hours to make."""
    try:
        _try(out if out.is_dir() else next(p for p in out.parents if p.exists()))
        yield
    except OSError as error:
        if error.filename is None or Path(error.filename) not in (out, *out.parents):
            raise
        raise OSError(
            f"`{option}` must be a path that can be written to, got {out}: {error.strerror}. "
            "Name another."
        ) from None


@contextmanager
def drawing(out: Path, option: str = "--out") -> Iterator[None]:
    """As `writing`, of a picture: that its name says of what kind is checked at once, too."""
    from fernn.experiments.figures._panel import form  # matplotlib takes a while to import

    with writing(out, option):
        try:
            form(out)
        except ValueError as error:
            raise ValueError(str(error).replace("`out`", f"`{option}`")) from None
        yield


def _try(folder: Path) -> None:
    """Raise where no file can be made in a folder, and leave none there."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = f"no file can be made in {folder} ({error.strerror})"
        raise OSError(error.errno, why, str(folder)) from None


def reflow(commands: typer.Typer) -> None:
    """Join the lines of each paragraph of help: typer breaks where a docstring does."""
    for command in commands.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            reflow(group.typer_instance)
