"""The application that commands add themselves to, and where they print."""

import sys

try:
    import typer
    from rich.console import Console
except ImportError:
    sys.exit("The fernn command needs its extra: pip install 'fernn[experiments]'.")

app = typer.Typer(
    help="Flow-equivariant sequence models: verify them, train them, and reproduce the paper.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
