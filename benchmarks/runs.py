"""What runs reached, as tables in Markdown: of Results, for the pages that `readme` writes."""

from collections.abc import Sequence
from statistics import fmean

from benchmarks import markdown
from benchmarks.markdown import number
from fernn.experiments import records, results, tables
from fernn.experiments.numerals import duration, number_text
from fernn.experiments.recipes import from_json, of_training
from fernn.experiments.render import to_markdown
from fernn.experiments.tabular import RATIO
from fernn.flows import Flow


def _larger(found: results.Results) -> results.Results:
    """Without quick runs: another, smaller task, and no answer to a number of the paper."""
    return results.Results(
        tuple(r for r in found.found if r.scale != "quick"),
        changed=tuple(r for r in found.changed if r.scale != "quick"),
    )


def lengths(found: results.Results) -> str:
    """The error along forecasts far beyond the ten frames of training, mean over seeds."""
    steps, errors = (1, 10, 20, 30, 60, 70), {}
    for run in _larger(found).every:
        if run.name.startswith("table1/"):
            how, others = _how(run.scale, run.record["epochs"], run.changes)
            label = ", ".join((f"`{run.name}`", *others))
            errors.setdefault((label, how), []).append(run.metrics["mse_per_step_long"])
    columns = ["MSE of forecast step", "trained", *map(str, steps), "60 over 10"]
    rows = []
    for (label, how), curves in errors.items():
        mean = [average([curve[step - 1] for curve in curves]) for step in steps]
        early, late = mean[steps.index(10)], mean[steps.index(60)]
        ratio = number(None) if early is None or late is None else f"{late / early:.1f}"
        rows.append([label, how, *map(number, mean), ratio])
    return markdown.table(columns, rows, words=(0, 1))


def readouts(found: results.Results) -> str:
    """Runs that differ in their readout alone, the paper's and the transported one: of each error
    both, means over the seeds that both have."""
    columns = ["published, transported", "trained", "seeds", "test", "both digits alike", "step 60"]
    runs: dict[_Kind, dict[int, results.Result]] = {}
    for run in _larger(found).every:
        if run.name.startswith("table1/"):
            runs.setdefault(_kind(run), {})[run.record["seed"]] = run
    rows = []
    for (name, scale, changes), published in runs.items():
        transported = runs.get((f"{name}-transported", scale, changes), {})
        seeds = sorted(published.keys() & transported.keys())
        if not seeds:
            continue
        pairs = ([of[seed].metrics for seed in seeds] for of in (published, transported))
        errors = (
            [average(of) for of in zip(*map(_three_errors, one), strict=True)] for one in pairs
        )
        record = published[seeds[0]].record
        how, others = _how(scale, record["epochs"], changes)
        model = ", ".join((record["recipe"]["published"]["row"], *others))
        cells = [", ".join(map(number, both)) for both in zip(*errors, strict=True)]
        rows.append([model, how, len(seeds), *cells])
    return markdown.table(columns, rows, words=(0, 1))


def _three_errors(metrics: dict) -> list[float | None]:
    """Of all sequences, of those whose digits have one velocity, and far ahead."""
    alike = average([entry["mse"] for entry in metrics["mse_per_velocity"]])
    return [metrics["test_mse"], alike, metrics["mse_per_step_long"][59]]


def velocities(found: results.Results) -> str:
    """The least and the largest error at one velocity for both digits, of models that were not
    trained on all velocities of the test split."""
    columns = ["test MSE", "trained", "training showed", "in V, not shown", "neither", "test split"]
    rows = []
    for run in _larger(found).every:
        if not run.name.startswith("fig5/"):
            continue
        recipe = from_json(run.record["recipe"])
        shown, own = (_velocities(flow) for flow in (recipe.data.flow, recipe.options["flow"]))
        groups: dict[str, list[float | None]] = {name: [] for name in columns[2:5]}
        for entry in run.metrics["mse_per_velocity"]:
            velocity = tuple(entry["velocity"])
            name = columns[2 if velocity in shown else 3 if velocity in own else 4]
            groups[name].append(entry["mse"])
        how, others = _how(run.scale, run.record["epochs"], run.changes)
        cells = [", ".join((f"`{run.name}`", *others)), how, *map(_range, groups.values())]
        rows.append([*cells, number(run.metrics["test_mse"])])
    return markdown.table(columns, rows, words=(0, 1))


def _velocities(flow: Flow) -> set[tuple[float, ...]]:
    return {tuple(velocity) for velocity in flow.velocities.tolist()}


def average(values: Sequence[float | None]) -> float | None:
    """None where one of them is not finite, which is what None says."""
    finite = [value for value in values if value is not None]
    return fmean(finite) if len(finite) == len(values) else None


def _range(errors: list[float | None]) -> str:
    if not errors:
        return "–"
    finite = [error for error in errors if error is not None]
    largest = max(finite) if len(finite) == len(errors) else None
    return " to ".join(dict.fromkeys(map(number, [min(finite, default=None), largest])))


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
    found_by: dict[tuple[str, str], list[dict]] = {}
    for run in _larger(found).found:
        data = run.record["recipe"]["data"]
        turning = "Rotation" in str(data["flow"])
        what = (
            "clips" if data["kind"] == "clips" else f"{'turning' if turning else 'moving'} digits"
        )
        found_by.setdefault((what, run.scale), []).append(run.record["recipe"]["training"])
    rows = []
    for (what, scale), every in sorted(found_by.items()):
        had = {key: list(dict.fromkeys(one[key] for one in every)) for key in keys}
        warm = [f", with {100 * share:g} % of warm-up" for share in had["warmup"] if share]
        cells = [what, scale, _each(had["epochs"]), _each(had["batch_size"])]
        cells += [_each(had["learning_rate"]), ", ".join(had["schedule"]) + "".join(warm)]
        rows.append([*cells, _each(had["clip"])])
    return markdown.table(columns, rows, words=(0, 1, 5))


def _each(values: list) -> str:
    return ", ".join("–" if value is None else f"{value:g}" for value in sorted(values, key=str))


def trained(found: results.Results) -> str:
    """Every run at the scales of the paper's models, a table for each task."""
    return _tables(_larger(found), LOSS)


def best(found: results.Results) -> str:
    """The same, but of each model only what was trained as published, and what has the least
    validation loss of all that differ in training alone; the test split has no say."""
    larger = _larger(found)
    alike: dict[_Kind, list[float]] = {}
    for run in larger.every:
        if of_training(run.changes):
            alike.setdefault(_kind(run), []).append(run.record["val_loss"])
    falling = sorted(alike, key=lambda kind: -fmean(alike[kind]))
    least = {kind[0]: kind for kind in falling}  # the last of a name stays
    kept = {*least.values(), *(kind for kind in alike if kind[1:] == ("paper", ()))}
    found_, changed = (
        tuple(run for run in runs if _kind(run) in kept) for runs in (larger.found, larger.changed)
    )
    return _tables(results.Results(found_, changed=changed))


_Kind = tuple[str, str, tuple[str, ...]]


def _kind(run: results.Result) -> _Kind:
    """What runs that differ in their seeds alone share."""
    return run.name, run.scale, run.changes


LOSS = "validation loss"


def _tables(larger: results.Results, *more: str) -> str:
    shown = [_shown(key, larger, more) for key in tables.KEYS if key != tables.COST]
    return "\n\n".join(filter(None, shown)) or "No run at the scales `paper` and `short` yet."


def _shown(key: str, larger: results.Results, more: Sequence[str]) -> str:
    """A table of the rows that have runs, in parts of one task each; nothing where none has."""
    made = tables.by_scale(key, larger)
    rows = [row for table in made for row in table.rows if row.trained]
    if not rows:
        return ""
    machines = {(*row.data["hardware"], *row.data["precision"]) for row in rows}
    apart = ["hardware"] if len(machines) > 1 else []  # else it is said once, below
    columns = [column for column in ("paper", "ours", RATIO) if column in made[0].columns]
    columns += [*more, "trained", "seeds", *apart, "time"]
    words = {0, *(columns.index(column) + 1 for column in ("trained", *apart))}
    number = key.partition("-")[0]
    every: list[results.Result] = []
    parts: dict[str, list[list[str]]] = {}
    for row in rows:
        data, cells = row.data, dict(zip(made[0].columns, row.cells, strict=True))
        kind = data["recipe"], data["scale"], data["changes"]
        runs = [run for run in larger.every if _kind(run) == kind]
        every += runs
        cells["trained"], others = _how(data["scale"], cells["epochs"], data["changes"])
        loss = fmean(run.record["val_loss"] for run in runs)
        cells[LOSS] = number_text(loss, None, data["unit"], digits=2)
        cells["hardware"] += f", {cells['precision']}"
        cells["time"] = "–" if data["wall_seconds"] is None else duration(data["wall_seconds"])
        if row.section not in parts:
            where = f"Table {number}{', not on KTH' * key.endswith('-actions')}: "
            what = f"{where if number.isdigit() else ''}{row.section}"
            unit = made[0].title.rpartition(", ")[2].partition(" (")[0]  # such as: test MSE
            parts[row.section] = [[f"{what}, {unit}", *columns]]
        model = ", ".join((data["row"], *others))  # long ones, too: there are no notes here
        parts[row.section].append([model, *(cells[column] for column in columns)])
    made_of = "; ".join([*([] if apart else rows[0].data["precision"]), *origins(every)])
    shown = (markdown.table(head, lines, words=words) for head, *lines in parts.values())
    return "\n\n".join([*shown, f"<sub>{made_of}</sub>"])


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


def origin(there: dict) -> str:
    """Where the numbers come from: machine, version, day and commit."""
    machine, commit = there["gpu"] or there["cpu"], records.short(records.commit(there))
    return f"{machine}, torch {there['torch']}, {there['date'][:10]}, commit {commit}"
