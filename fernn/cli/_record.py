"""What a finished run measured, on a screen: what `fernn train` and `fernn show` end with."""

from typing import Any

from rich.table import Table

from fernn.cli._app import console


def print_numbers(record: dict[str, Any]) -> None:
    """One line a number."""
    table, speed = Table(box=None, show_header=False), record["sequences_per_second"]
    rows = {
        "epochs": f"{record['epochs']}, best {record['best_epoch']}",
        "val loss": f"{record['val_loss']:.3e}",
        **{
            name.replace("_", " "): "not finite" if value is None else f"{value:.4g}"
            for name, value in record["metrics"].items()
            if isinstance(value, int | float | None)
        },
        "parameters": f"{record['parameters']:,}",
        "GFLOP": f"{record['flops_per_sequence'] / 1e9:.3g} a training sequence",
        "precision": f"{record['precision']} on {record['device']}",
        "training": f"{record['wall_seconds']:.0f} s, {speed:.1f} sequences/s",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
