"""What runs reached, as tables in Markdown: of Results, for the pages that `readme` writes."""

from collections.abc import Sequence
from statistics import fmean

from fernn.experiments import records, results, tables
from fernn.experiments.numerals import duration
from fernn.experiments.recipes import from_json
from fernn.experiments.render import to_markdown
from fernn.experiments.tabular import RATIO
from fernn.flows import Flow


def _larger(found: results.Results) -> results.Results:
    """Without quick runs: another, smaller task, and no answer to a number of the paper."""
    return results.Results(
        tuple(r for r in found.found if r.scale != "quick"),
        changed=tuple(r for r in found.changed if r.scale != "quick"),
    )


def best(found: results.Results) -> str:
    """Of each forecaster that the paper has a number of the training with the least validation
    loss; the test split has no say."""
    larger = _larger(found)
    kept: dict[str, tuple[float, str]] = {}
    for key in ("1", "4"):
        rows = (row for table in tables.by_scale(key, larger) for row in table.rows)
        for data in (row.data for row in rows if row.data["n"] and row.data["paper"]):
            what = data["recipe"], data["scale"], data["changes"]
            runs = [run for run in larger.every if (run.name, run.scale, run.changes) == what]
            loss = fmean(run.record["val_loss"] for run in runs)
            mean, reported = data["ours"]["mean"], data["paper"]["mean"]
            how, _ = _how(data["scale"], ", ".join(map(str, data["epochs"])), data["changes"])
            readout = "" if "transported" in data["recipe"] else ", published"
            cells = [data["row"] + readout, f"`{data['recipe']}`", number(reported), number(mean)]
            cells += [f"{data['ratio']:.2f}", number(loss), how, duration(data["wall_seconds"])]
            if data["recipe"] not in kept or loss < kept[data["recipe"]][0]:
                kept[data["recipe"]] = loss, "| " + " | ".join(cells) + " |"
    columns = ["model", "recipe", "paper", "ours", "ours / paper", "validation", "trained", "time"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|--:|--:|--:|--:|---|--:|"]
    return "\n".join([*lines, *(line for _, line in kept.values())])


def lengths(found: results.Results) -> str:
    """The error along forecasts far beyond the ten frames of training, mean over seeds."""
    steps, errors = (1, 10, 20, 30, 60, 70), {}
    for run in _larger(found).every:
        if run.name.startswith("table1/"):
            how, others = _how(run.scale, run.record["epochs"], run.changes)
            label = f"{', '.join((f'`{run.name}`', *others))} | {how}"
            errors.setdefault(label, []).append(run.metrics["mse_per_step_long"])
    columns = ["MSE of forecast step", "trained", *map(str, steps), "60 over 10"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "--:|" * (len(steps) + 1)]
    for label, curves in errors.items():
        mean = [fmean(curve[step - 1] for curve in curves) for step in steps]
        ratio = mean[steps.index(60)] / mean[steps.index(10)]
        cells = [label, *(f"{value:.1e}" for value in mean), f"{ratio:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def velocities(found: results.Results) -> str:
    """The least and the largest error at one velocity for both digits, of models that were not
    trained on all velocities of the test split."""
    columns = ["test MSE", "trained", "training showed", "in V, not shown", "neither", "test split"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "--:|" * 4]
    for run in _larger(found).every:
        if not run.name.startswith("fig5/"):
            continue
        recipe = from_json(run.record["recipe"])
        shown, own = (_velocities(flow) for flow in (recipe.data.flow, recipe.options["flow"]))
        groups: dict[str, list[float]] = {name: [] for name in columns[2:5]}
        for entry in run.metrics["mse_per_velocity"]:
            velocity = tuple(entry["velocity"])
            name = columns[2 if velocity in shown else 3 if velocity in own else 4]
            groups[name].append(entry["mse"])
        how, others = _how(run.scale, run.record["epochs"], run.changes)
        cells = [", ".join((f"`{run.name}`", *others)), how, *map(_range, groups.values())]
        lines.append("| " + " | ".join([*cells, number(run.metrics["test_mse"])]) + " |")
    return "\n".join(lines)


def _velocities(flow: Flow) -> set[tuple[float, ...]]:
    return {tuple(velocity) for velocity in flow.velocities.tolist()}


def _range(errors: list[float]) -> str:
    ends = [number(min(errors)), number(max(errors))] if errors else ["–"]
    return " to ".join(dict.fromkeys(ends))


def _how(scale: str, epochs: object, changes: Sequence[str]) -> tuple[str, list[str]]:
    """How a run was trained, in words, and what was changed in it beside that.

    >>> _how("short", 20, ["data.horizon=20", "training.epochs=20", "training.clip=None"])
    ('short, 20 epochs, no clip', ['data.horizon=20'])
    """
    words, others = [scale, f"{epochs} epoch{'s' * (str(epochs) != '1')}"], []
    for change in changes:
        name, _, value = change.partition("=")
        place, _, field = name.partition(".")
        field = field.replace("_", " ")
        if place != "training":
            others.append(change)
        elif field != "epochs":
            words.append(f"no {field}" if value == "None" else f"{field} {value}")
    return ", ".join(words), others


TRANSPORTED = "table1/translation/fernn-v2-transported"
"""What most controls are of."""


def controls(found: results.Results) -> str:
    """Runs that differ in how they train and read out, of each readout the largest error first."""
    columns = ["readout", "rate", "batch", "gradient clipped at", "steps"]
    columns += ["validation", "test", "step 60"]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 1)]
    runs = [run for run in found.changed if not _longer(run)]
    _check_alike(runs)
    runs.sort(key=lambda run: (run.name != TRANSPORTED, -run.record["val_loss"]))
    for run in runs:
        training, metrics = run.record["recipe"]["training"], run.metrics
        steps = run.record["curve"][-1]["step"]
        cells = [run.record["recipe"]["options"]["readout"], f"{training['learning_rate']:g}"]
        cells += [training["batch_size"], f"{training['clip']:g}"]
        errors = run.record["val_loss"], metrics["test_mse"], metrics["mse_per_step_long"][59]
        cells += [f"{steps:,}", *map(number, errors)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", f"<sub>{'; '.join(origins(runs))}</sub>"])


def horizons(found: results.Results) -> str:
    """Runs that differ in how many frames they learn to forecast, and in how many sequences."""
    steps = (1, 5, 10, 20, 30, 60)
    columns = ["frames forecast in training", "sequences", "steps"]
    columns += [f"step {step}" for step in steps] + ["60 over 10"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "--:|" * len(columns)]
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
        lines.append("| " + " | ".join([*cells, f"{errors[59] / errors[9]:.1f}"]) + " |")
    return "\n".join([*lines, "", f"<sub>{'; '.join(origins(runs))}</sub>"])


def _check_alike(runs: list[results.Result]) -> None:
    """Refuse to compare runs on different digits, or trained otherwise than their table shows."""
    sources = sorted({run.record["data"] for run in runs})
    if len(sources) > 1:
        raise ValueError(f"runs of one table must share their data, got {', '.join(sources)}.")
    for name in ("epochs", "schedule", "warmup"):
        values = {run.record["recipe"]["training"][name] for run in runs}
        if len(values) > 1:
            raise ValueError(
                f"runs of one table must share their training.{name}, got "
                f"{', '.join(map(str, sorted(values)))}."
            )


def _longer(run: results.Result) -> bool:
    """Whether a run learned longer forecasts than its recipe asks for."""
    return any(change.startswith("data.horizon=") for change in run.changes)


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
    for (what, scale), every in sorted(rows.items()):
        had = {key: list(dict.fromkeys(one[key] for one in every)) for key in keys}
        warm = [f", with {100 * share:g} % of warm-up" for share in had["warmup"] if share]
        cells = [what, scale, _each(had["epochs"]), _each(had["batch_size"])]
        cells += [_each(had["learning_rate"]), ", ".join(had["schedule"]) + "".join(warm)]
        lines.append("| " + " | ".join([*cells, _each(had["clip"])]) + " |")
    return "\n".join(lines)


def _each(values: list) -> str:
    return ", ".join("–" if value is None else f"{value:g}" for value in sorted(values, key=str))


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
    columns = [title, "", *known, "trained", "seeds", *([] if shared else ["hardware"]), "time"]
    lines = ["| " + " | ".join(columns) + " |"]
    lines += ["|---|---|" + "--:|" * len(known) + "---|--:|" + "---|" * (not shared) + "--:|"]
    for row, cell, machine in zip(rows, cells_of, machines, strict=True):
        seconds = row.data["wall_seconds"]
        how, others = _how(row.data["scale"], cell["epochs"], row.data["changes"])
        model = ", ".join((row.data["row"], *others))  # long ones, too: there are no notes here
        cells = [row.section, model, *(cell[column] for column in known), how, cell["seeds"]]
        cells += [] if shared else [machine]
        cells += ["–" if seconds is None else duration(seconds)]
        lines.append("| " + " | ".join(cells) + " |")
    names = {row.data["recipe"] for row in rows}
    runs = [r for r in larger.every if r.name in names]
    precision = [cells_of[0]["precision"]] if shared else []
    return "\n".join([*lines, "", f"<sub>{'; '.join(precision + origins(runs))}</sub>"])


def spent(found: results.Results) -> str:
    """What the runs at the scales of the paper's models cost."""
    made = tables.by_scale(tables.COST, _larger(found))
    return "\n\n".join(to_markdown(table).strip() for table in made if table.rows)


def origins(runs: list[results.Result]) -> list[str]:
    """Where runs come from, those of one day and machine together."""
    places: dict[str, dict[str, None]] = {}
    for run in runs:
        where = origin(run.record["environment"]).partition(", commit ")[0]
        commits = map(records.short, records.commits(run.record))
        places.setdefault(where, {}).update(dict.fromkeys(commits))
    return [f"{where}, commit {', '.join(commits)}" for where, commits in places.items()]


def number(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if value else "0"


def origin(there: dict) -> str:
    """Where the numbers come from: machine, version, day and commit."""
    machine, commit = there["gpu"] or there["cpu"], records.short(records.commit(there))
    return f"{machine}, torch {there['torch']}, {there['date'][:10]}, commit {commit}"
