"""`fernn …` on the command line: thin, everything it does is a function of the library."""

import sys
from importlib.util import find_spec

# Before any command asks for them: else the first that is missing is named, and not what has it.
if not all(find_spec(name) for name in ("lightning", "matplotlib", "rich", "typer")):
    sys.exit("The fernn command needs its extra: pip install 'fernn[experiments]'.")

from fernn.cli import data, demo, evaluate, report, show, train, verify
from fernn.cli._app import app, reflow

__all__ = ["app", "data", "demo", "evaluate", "main", "report", "show", "train", "verify"]


reflow(app)


def main() -> None:
    """Run the command line; a bad value or a missing file is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
