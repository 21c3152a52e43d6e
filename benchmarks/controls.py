"""Runs on a CPU that differ in one thing, as tables for docs/training.md."""

import math
from collections.abc import Sequence

from benchmarks import markdown
from benchmarks.markdown import number
from benchmarks.runs import average, origins
from fernn.experiments import results
from fernn.experiments.recipes import from_json

TRANSPORTED = "table1/translation/fernn-v2-transported"
"""What most controls are of."""


def controls(found: results.Results) -> str:
    """Runs that differ in how they train and read out, of each readout the largest error first."""
    columns = ["readout", "rate", "batch", "gradient clipped at", "steps"]
    columns += ["validation", "test", "step 60"]
    rows = []
    runs = [run for run in found.changed if run.name.startswith("table1/") and not _longer(run)]
    _check_alike(runs)
    runs.sort(key=lambda run: (run.name != TRANSPORTED, -run.record["val_loss"]))
    for run in runs:
        training, metrics = run.record["recipe"]["training"], run.metrics
        steps = run.record["curve"][-1]["step"]
        cells = [run.record["recipe"]["options"]["readout"], f"{training['learning_rate']:g}"]
        cells += [training["batch_size"], f"{training['clip']:g}"]
        errors = run.record["val_loss"], metrics["test_mse"], metrics["mse_per_step_long"][59]
        rows.append([*cells, f"{steps:,}", *map(number, errors)])
    return markdown.table(columns, rows, about="; ".join(origins(runs)))


def horizons(found: results.Results) -> str:
    """Runs that differ in how many frames they learn to forecast, and in how many sequences."""
    steps = (1, 5, 10, 20, 30, 60)
    columns = ["frames forecast in training", "sequences", "steps"]
    columns += [f"step {step}" for step in steps] + ["60 over 10"]
    rows = []
    runs = [run for run in found.changed if run.name == TRANSPORTED]
    alike = [run.record["recipe"]["training"] for run in runs if _longer(run)]
    runs = [run for run in runs if run.record["recipe"]["training"] in alike]
    _check_alike(runs)
    runs.sort(
        key=lambda run: (run.record["recipe"]["data"]["horizon"], -run.record["curve"][-1]["step"])
    )
    for run in runs:
        errors, last = run.metrics["mse_per_step_long"], run.record["curve"][-1]
        cells = [str(run.record["recipe"]["data"]["horizon"]), f"{last['sequences']:,}"]
        cells += [f"{last['step']:,}", *(number(errors[step - 1]) for step in steps)]
        rows.append([*cells, f"{errors[59] / errors[9]:.1f}"])
    return markdown.table(columns, rows, words=(), about="; ".join(origins(runs)))


def mixing(found: results.Results) -> str:
    """Runs on bouncing digits that differ in which velocities mix and in how many channels there
    are, means over seeds, the largest error first."""
    columns = ["velocities", "mixing", "channels", "weights", "GFLOP", "seeds", "validation"]
    columns += ["test", "least and largest"]
    runs = [run for run in found.changed if run.name.startswith("table4/")]
    _check_alike(runs, ("epochs", "batch_size", "learning_rate", "schedule", "warmup", "clip"))
    models: dict[tuple[str, ...], list[results.Result]] = {}
    for run in runs:
        options = from_json(run.record["recipe"]).options
        mixed = {None: "–", 1: "nearest"}.get(options.get("mixing"), "full")
        model = str(len(options["flow"])), mixed, str(options["hidden_channels"])
        models.setdefault(model, []).append(run)
    rows = []
    for model, seeds in models.items():
        record, errors = seeds[0].record, [run.metrics["test_mse"] for run in seeds]
        mean = average(errors)
        cells = [*model, f"{record['parameters']:,}", f"{record['flops_per_sequence'] / 1e9:.1f}"]
        cells += [str(len(seeds)), number(average([run.record["val_loss"] for run in seeds]))]
        ends = [number(None)] * 2 if mean is None else [f"{mean:.2e}", _ends(errors)]
        rows.append((-math.inf if mean is None else -mean, [*cells, *ends]))
    rows.sort()
    about = "; ".join(origins(runs))
    return markdown.table(columns, (row for _, row in rows), words=(1,), about=about)


def _ends(errors: list[float]) -> str:
    return f"{min(errors):.2e}, {max(errors):.2e}"


def _check_alike(
    runs: list[results.Result], training: Sequence[str] = ("epochs", "schedule", "warmup")
) -> None:
    """Refuse to compare runs on different digits, or trained otherwise than their table shows."""
    sources = sorted({run.record["data"] for run in runs})
    if len(sources) > 1:
        raise ValueError(f"runs of one table must share their data, got {', '.join(sources)}.")
    for name in training:
        values = {run.record["recipe"]["training"][name] for run in runs}
        if len(values) > 1:
            raise ValueError(
                f"runs of one table must share their training.{name}, got "
                f"{', '.join(map(str, sorted(values)))}."
            )


def _longer(run: results.Result) -> bool:
    """Whether a run learned longer forecasts than its recipe asks for."""
    return any(change.startswith("data.horizon=") for change in run.changes)
