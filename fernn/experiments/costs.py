"""What training costs: a table of every recipe that has runs, changed ones below the plain."""

from collections.abc import Sequence
from itertools import groupby

from fernn.experiments.numerals import duration
from fernn.experiments.results import Result, Results, mean_and_spread
from fernn.experiments.tabular import NONE, Row, Table, settings_label, settings_lines


def table(key: str, results: Results, scale: str | None) -> Table:
    """What each model costs: parameters, arithmetic, speed and memory, from runs at one scale."""
    noted: list[tuple[str, ...]] = []
    rows = []
    for (name, changes), runs in groupby(results.every, key=lambda r: (r.name, r.changes)):
        label = f"{name}, {settings_label(changes, noted)}" if changes else name
        rows.append(_row(label, scale, list(runs)))
    columns = (
        "recipe",
        "parameters",
        "GFLOP",
        "seq/s",
        "GiB",
        "time",
        "precision",
        "hardware",
    )
    notes = (
        "GFLOP of one training sequence, forward and backward",
        "sequences a second, GiB of GPU memory at the peak and time are means over seeds",
    )
    settings = settings_lines(noted)
    return Table(key, "What training costs", columns, tuple(rows), notes, scale, settings)


def _row(label: str, scale: str | None, runs: Sequence[Result]) -> Row:
    def mean(key: str) -> float | None:
        known = [float(r.record[key]) for r in runs if r.record.get(key) is not None]
        return mean_and_spread(known)[0] if known else None

    flops, memory = mean("flops_per_sequence"), mean("peak_memory_bytes")
    seconds, speed = mean("wall_seconds"), mean("sequences_per_second")
    parameters = runs[0].record.get("parameters")
    precision = sorted({str(r.record.get("precision")) for r in runs})
    hardware = sorted({r.hardware for r in runs})
    data = {
        "recipe": runs[0].name,
        "changes": runs[0].changes,
        "scale": scale,
        "n": len(runs),
        "parameters": parameters,
        "flops_per_sequence": flops,
        "sequences_per_second": speed,
        "peak_memory_bytes": memory,
        "wall_seconds": seconds,
        "precision": precision,
        "hardware": hardware,
    }
    cells = (
        label,
        NONE if parameters is None else f"{parameters:,}".replace(",", " "),
        NONE if flops is None else f"{flops / 1e9:.3g}",
        NONE if speed is None else f"{speed:.3g}",
        NONE if memory is None else f"{memory / 2**30:.2f}",
        NONE if seconds is None else duration(seconds),
        ", ".join(precision),
        ", ".join(hardware),
    )
    section = runs[0].name.partition("/")[0]
    return Row(section, cells, data | {"section": section})
