"""Write the measured tables of README and docs from the records: `python -m benchmarks.readme`.

A section lies between `<!-- NAME: begin … -->` and `<!-- NAME: end -->`; a test holds the README to
what this prints, so no number in a table is typed by hand.
"""

import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from benchmarks import left, report
from fernn._files import written_whole
from fernn.experiments import results, tables
from fernn.experiments.numerals import duration
from fernn.experiments.render import to_markdown
from fernn.experiments.tabular import RATIO
from fernn.models import pretrained_record

ROOT = Path(__file__).parent.parent


def verification(record: dict) -> str:
    """The table of errors that `fernn verify --record` wrote."""
    columns = ["flow", "model", "float64", "trained", "float32", "bfloat16"]
    columns += ["all of V", "interpolation", "verdict"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "--:|" * 6 + "---|"]
    for row in record["rows"]:
        cells = [_number(row[name]) for name in columns]
        lines.append("| " + " | ".join(cells).replace("|ν|", "\\|ν\\|") + " |")
    return "\n".join(
        [*lines, "", f"<sub>{_origin(record['environment'])}, seed {record['seed']}</sub>"]
    )


def pretrained(record: dict) -> str:
    """The weights in the package: what they reach, by the records beside them, and the table of
    errors that `fernn verify pretrained --record` wrote."""
    columns = "| weights | model | trained | test MSE | step 60 | states | forecast |"
    lines = [columns, "|---|---|---|--:|--:|--:|--:|"]
    for row in record["rows"]:
        about = pretrained_record(row["name"])
        recipe, metrics = about["recipe"], about["metrics"]
        cells = [
            f"`{row['name']}`",
            ", ".join([recipe["published"]["row"], *_variant(recipe["options"])]),
            f"epoch {about['best_epoch']} of {about['epochs']}, {duration(about['wall_seconds'])}",
            _number(metrics["test_mse"]),
            _number(metrics["mse_per_step_long"][59]),
            f"{_number(row['float64'])}, {row['verdict']}",
            f"{_number(row['forecast'])}, {row['forecast verdict']}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    trained = {
        f"{about['precision']} on an {about['environment']['gpu']}, seed {about['seed']}, commit "
        f"{about['environment']['commit'][:7]}"
        for about in (pretrained_record(row["name"]) for row in record["rows"])
    }
    origin = (
        f"Trained in {'; '.join(sorted(trained))}. Verified on {_origin(record['environment'])}"
    )
    return "\n".join([*lines, "", f"<sub>{origin}</sub>"])


def _variant(options: dict) -> list[str]:
    """How a model differs from the paper's: in its readout and in its frame."""
    return [options["readout"], *(["co-moving"] if options.get("frame") == "comoving" else [])]


def steering(record: dict) -> str:
    """How well convolutions on Z² ⋊ C_N turn."""
    lines = [
        "| N | kernel | quarter turn, stack | 360°/N, lift | 360°/N, stack "
        "| lift, kernels not turned |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for row in record["steering"]:
        size = f"{row['kernel']}×{row['kernel']}"
        errors = [_number(row[name]) for name in ("quarter", "lift", "stack", "fixed")]
        lines.append(f"| {row['orientations']} | {size} | " + " | ".join(errors) + " |")
    return "\n".join(
        [*lines, "", f"<sub>{_origin(record['environment'])}, seed {record['seed']}</sub>"]
    )


def cpu(record: dict) -> str:
    """Time and peak memory of both formulations on a CPU."""
    lines = ["| forward and backward on a CPU | seconds | peak GiB |", "|---|--:|--:|"]
    for name, median in record["median"].items():
        lines.append(f"| {name} | {median['seconds']:.1f} | {median['peak_gib']:.2f} |")
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items())
    origin = _origin(record["environment"])
    return "\n".join([*lines, "", f"<sub>{settings}; {origin}</sub>"])


def rates(record: dict) -> str:
    """Sequences a second of every dataset, at its fastest batch size."""
    lines = ["| dataset | one CPU core | GPU |", "|---|--:|--:|"]
    best: dict[str, dict[str, dict]] = {}
    for row in record["results"]:
        there = best.setdefault(row["name"], {})
        fastest = there.get(row["device"])
        if fastest is None or row["sequences_per_second"] > fastest["sequences_per_second"]:
            there[row["device"]] = row
    for name, there in best.items():
        cells = [
            f"{row['sequences_per_second']:,.0f}/s (batch {row['batch']})"
            for row in (there["cpu"], there["cuda"])
        ]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return "\n".join([*lines, "", f"<sub>{_origin(record['environment'])}</sub>"])


def _larger(found: results.Results) -> results.Results:
    """Without quick runs: another, smaller task, and no answer to a number of the paper."""
    return results.Results(
        tuple(r for r in found.found if r.scale != "quick"),
        changed=tuple(r for r in found.changed if r.scale != "quick"),
    )


def lengths(found: results.Results) -> str:
    """The error along forecasts far beyond the ten frames of training, mean over seeds."""
    steps, errors = (1, 10, 20, 30, 60, 70), {}
    larger = _larger(found)
    for run in (*larger.found, *larger.changed):
        if run.name.startswith("table1/"):
            label = ", ".join((f"`{run.name}`", run.scale, *run.changes))
            errors.setdefault(label, []).append(run.metrics["mse_per_step_long"])
    columns = ["MSE of forecast step", *map(str, steps), "60 over 10"]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(steps) + 1)]
    for label, curves in errors.items():
        mean = [fmean(curve[step - 1] for curve in curves) for step in steps]
        ratio = mean[steps.index(60)] / mean[steps.index(10)]
        cells = [label, *(f"{value:.1e}" for value in mean), f"{ratio:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def controls(found: results.Results) -> str:
    """Runs that differ in how they train alone, those with the largest error first."""
    columns = ["rate", "batch", "gradient clipped at", "steps", "test MSE", "step 60"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "--:|" * len(columns)]
    runs = [run for run in found.changed if not _longer(run)]
    runs.sort(key=lambda run: -run.metrics["test_mse"])
    for run in runs:
        training, metrics = run.record["recipe"]["training"], run.metrics
        steps = run.record["curve"][-1]["step"]
        cells = [f"{training['learning_rate']:g}", training["batch_size"], f"{training['clip']:g}"]
        cells += [
            f"{steps:,}",
            *map(_number, (metrics["test_mse"], metrics["mse_per_step_long"][59])),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", f"<sub>{'; '.join(_origins(runs))}</sub>"])


def horizons(found: results.Results) -> str:
    """Runs that differ in how many frames they learn to forecast alone, at the same arithmetic."""
    steps = (1, 5, 10, 20, 30, 60)
    columns = ["frames forecast in training", "sequences", "steps"]
    columns += [f"step {step}" for step in steps] + ["60 over 10"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "--:|" * len(columns)]
    alike = [run.record["recipe"]["training"] for run in found.changed if _longer(run)]
    runs = [run for run in found.changed if run.record["recipe"]["training"] in alike]
    for run in sorted(runs, key=lambda run: run.record["recipe"]["data"]["horizon"]):
        errors, last = run.metrics["mse_per_step_long"], run.record["curve"][-1]
        cells = [str(run.record["recipe"]["data"]["horizon"]), f"{last['sequences']:,}"]
        cells += [f"{last['step']:,}", *(_number(errors[step - 1]) for step in steps)]
        lines.append("| " + " | ".join([*cells, f"{errors[59] / errors[9]:.1f}"]) + " |")
    return "\n".join([*lines, "", f"<sub>{'; '.join(_origins(runs))}</sub>"])


def _longer(run: results.Result) -> bool:
    """Whether a run learned longer forecasts than its recipe asks for."""
    return any(change.startswith("data.horizon=") for change in run.changes)


def drift(record: dict) -> str:
    """What is left of the growth of errors in each form."""
    forms = list(next(iter(record["errors"].values())))
    lines = ["| MSE of step 10, of step 60, their ratio | " + " | ".join(forms) + " |"]
    lines.append("|---|" + "--:|" * len(forms))
    for name, errors in record["errors"].items():
        ends = [(errors[form][9], errors[form][59]) for form in forms]
        cells = [f"{early:.1e}, {late:.1e}, {late / early:.1f}" for early, late in ends]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    about = f"{record['sequences']} test sequences of {record['digits']}"
    return "\n".join([*lines, "", f"<sub>{about}; {_origin(record['environment'])}</sub>"])


def training(found: results.Results) -> str:
    """How the runs of recipes as they are were trained, by what they see and by scale."""
    keys = ("epochs", "batch_size", "learning_rate", "schedule", "warmup", "clip")
    columns = [
        "sequences of",
        "scale",
        "epochs",
        "batch",
        "rate",
        "schedule",
        "gradient clipped at",
    ]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|--:|--:|--:|---|--:|"]
    rows: dict[tuple[str, str], list[dict]] = {}
    for run in _larger(found).found:
        data = run.record["recipe"]["data"]
        turning = "Rotation" in str(data["flow"])
        what = (
            "clips" if data["kind"] == "clips" else f"{'turning' if turning else 'moving'} digits"
        )
        rows.setdefault((what, run.scale), []).append(run.record["recipe"]["training"])
    for (what, scale), had in sorted(rows.items()):
        values = {key: list(dict.fromkeys(training[key] for training in had)) for key in keys}
        rates = ", ".join(f"{rate:g}" for rate in sorted(values["learning_rate"]))
        (schedule,), (warmup,) = values["schedule"], values["warmup"]
        rises = f", after {100 * warmup:g} % of warm-up" if warmup else ""
        cells = [what, scale, *map(_only, (values["epochs"], values["batch_size"])), rates]
        cells += [schedule + rises, "–" if values["clip"] == [None] else _only(values["clip"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _only(values: list) -> str:
    (value,) = values
    return f"{value:g}"


def trained(found: results.Results) -> str:
    """Every table that has runs at the scales of the paper's models."""
    larger = _larger(found)
    shown = [_shown(key, larger) for key in tables.KEYS if key != tables.COST]
    return "\n\n".join(filter(None, shown)) or "No run at the scales `paper` and `short` yet."


def _shown(key: str, larger: results.Results) -> str:
    """One table, of the rows that have runs; nothing where there is none."""
    made = tables.by_scale(key, larger)
    rows = [row for table in made for row in table.rows if row.trained]
    if not rows:
        return ""
    known = [column for column in ("paper", "ours", RATIO) if column in made[0].columns]
    number = key.partition("-")[0]
    title = f"Table {number}: {made[0].title}" if number.isdigit() else made[0].title
    cells_of = [dict(zip(made[0].columns, row.cells, strict=True)) for row in rows]
    machines = [f"{cell['hardware']}, {cell['precision']}" for cell in cells_of]
    shared = len(set(machines)) == 1  # then it is said once, below
    columns = [title, "", *known, "scale", "seeds", *([] if shared else ["hardware"]), "a run"]
    lines = ["| " + " | ".join(columns) + " |"]
    lines += ["|---|---|" + "--:|" * len(known) + "---|--:|" + "---|" * (not shared) + "--:|"]
    for row, cell, machine in zip(rows, cells_of, machines, strict=True):
        seconds = row.data["wall_seconds"]
        cells = [row.section, cell["model"], *(cell[column] for column in known)]
        cells += [f"{row.data['scale']}, {cell['epochs']} epochs", cell["seeds"]]
        cells += [] if shared else [machine]
        cells += ["–" if seconds is None else duration(seconds)]
        lines.append("| " + " | ".join(cells) + " |")
    names = {row.data["recipe"] for row in rows}
    runs = [r for r in (*larger.found, *larger.changed) if r.name in names]
    precision = [cells_of[0]["precision"]] if shared else []
    return "\n".join([*lines, "", f"<sub>{'; '.join(precision + _origins(runs))}</sub>"])


def spent(found: results.Results) -> str:
    """What the runs at the scales of the paper's models cost."""
    made = tables.by_scale(tables.COST, _larger(found))
    return "\n\n".join(to_markdown(table).strip() for table in made if table.rows)


Section = tuple[str, Callable[..., str]]
SECTIONS: dict[str, dict[str, Section]] = {
    "README.md": {
        "verification": ("results/verification.json", verification),
        "training": ("results", training),
        "results": ("results", trained),
        "controls": ("results/controls", controls),
        "lengths": ("results", lengths),
        "horizons": ("results/controls", horizons),
        "drift": ("benchmarks/results/drift.json", drift),
        "left": ("benchmarks/results/left.json", left.table),
        "pretrained": ("results/pretrained-verification.json", pretrained),
        "speed": ("benchmarks/results/gpu.json", report.table),
        "streaming": ("benchmarks/results/gpu.json", report.streaming),
        "cpu": ("benchmarks/results/cpu.json", cpu),
        "rates": ("benchmarks/results/data-h200.json", rates),
    },
    "results/README.md": {"results": ("results", trained), "cost": ("results", spent)},
    "fernn/ops/README.md": {"goals": ("benchmarks/results/gpu.json", report.goals)},
    "docs/theory.md": {"steering": ("results/verification.json", steering)},
}


def render(text: str, page: str = "README.md") -> str:
    """The text of a page with every section written anew from its record."""
    for name, (source, write) in SECTIONS[page].items():
        path = ROOT / source  # a record, or a folder of runs
        record = results.load(path) if path.is_dir() else report.load(path)
        pattern = rf"(<!-- {name}: begin.*?-->\n).*?(<!-- {name}: end -->)"
        places = list(re.finditer(pattern, text, flags=re.S))
        if len(places) != 1:
            raise ValueError(f"{page} must have one section {name!r}, found {len(places)}.")
        (place,) = places
        text = f"{text[: place.end(1)]}{write(record)}\n{text[place.start(2) :]}"
    return text


def _number(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if value else "0"


def _origin(there: dict) -> str:
    """Where the numbers come from: machine, version, day and commit."""
    machine, commit = there["gpu"] or there["cpu"], (there["commit"] or "unknown")[:7]
    changed = " and changes" if there.get("dirty") else ""
    return f"{machine}, torch {there['torch']}, {there['date'][:10]}, commit {commit}{changed}"


def _origins(runs: list[results.Result]) -> list[str]:
    """Where runs come from, those of one day and machine together."""
    places: dict[str, dict[str, None]] = {}
    for run in runs:
        where, _, commit = _origin(run.record["environment"]).partition(", commit ")
        places.setdefault(where, {})[commit] = None
    return [f"{where}, commit {', '.join(commits)}" for where, commits in places.items()]


def main() -> None:
    for page in SECTIONS:
        path = ROOT / page
        text = render(path.read_text(encoding="utf-8"), page)
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
