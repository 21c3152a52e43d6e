"""`fernn …` on the command line: thin, everything it does is a function of the library."""

import sys

from fernn.cli import data, verify
from fernn.cli._app import app, console

__all__ = ["app", "data", "main", "verify"]


def main() -> None:
    """Run the command line; a bad value or a missing file is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        sys.exit(2)
