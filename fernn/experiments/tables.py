"""The paper's tables from records alone: its value, ours, and what is missing, side by side.

Rows measured on other clips than KTH's have tables of their own, such as "2-actions", without the
paper's column: the paper's numbers are KTH's. A changed recipe is a row of its own below the one it
was changed from, labelled with the change and without a number of the paper's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fernn._nearest import nearest
from fernn.experiments import paper
from fernn.experiments.numerals import duration, number_text
from fernn.experiments.recipes import SCALES, recipes
from fernn.experiments.results import Result, Results, mean_and_spread

_TITLES = {
    "1": "Flowing MNIST, test MSE (lower is better)",
    "2": "Moving KTH, test accuracy (higher is better)",
    "3": "Moving KTH with a velocity that switches, test accuracy (higher is better)",
    "4": "Bouncing MNIST, test MSE (lower is better)",
    "5": "Moving KTH with augmentation, test accuracy (higher is better)",
    "larger": "Larger baselines, test MSE (lower) and accuracy (higher)",
    "wrapper": "Other sequence models, alone and in moving frames, test MSE (lower is better)",
}
_OURS = ("wrapper",)  # tables that the paper does not have
_STAND_IN = "-actions"
_ON_CLIPS = ("2", "3", "5", "larger")
COST = "cost"
KEYS = (
    *(k for key in _TITLES for k in ((key, key + _STAND_IN) if key in _ON_CLIPS else (key,))),
    COST,
)

COLUMNS: tuple[str, ...] = (
    "model",
    "paper",
    "ours",
    "ours / paper",
    "seeds",
    "scale",
    "epochs",
    "hardware",
)
_FOLDABLE = ("scale", "epochs", "precision", "hardware")
_RATIO = "ours / paper"
_METRICS = {paper.MSE: "test_mse", paper.ACCURACY: "accuracy"}
_LABELLED = 72  # characters of changes in a label; all of them are in a note then
MISSING = "missing"
NONE = "–"


@dataclass(frozen=True)
class Row:
    """A line of a table: its cells as text, and the same as data."""

    section: str
    cells: tuple[str, ...]
    data: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table ready to be shown in any form."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def folded(self) -> "Table":
        """Without the columns that are the same in every row: what they say becomes a note."""
        kept, notes = [], list(self.notes)
        for place, column in enumerate(self.columns):
            values = {row.cells[place] for row in self.rows if row.data["n"]}
            if column == _RATIO:
                kept += [place] if values - {NONE} else []
            elif column not in _FOLDABLE or len(values) > 1:
                kept.append(place)
            elif values - {NONE}:
                notes.append(f"{column}: {values.pop()}")
        rows = (
            Row(row.section, tuple(row.cells[place] for place in kept), row.data)
            for row in self.rows
        )
        columns = tuple(self.columns[place] for place in kept)
        return Table(self.key, self.title, columns, tuple(rows), tuple(notes))

    @property
    def measured(self) -> bool:
        """Whether any row has a result."""
        return any(row.data["n"] for row in self.rows)


def table(key: str, results: Results, *, scale: str | None = None) -> Table:
    """A table by its number, from the runs at every scale or at one."""
    if key not in KEYS:
        raise ValueError(
            f"`table` must be one of {', '.join(KEYS)}, got {key!r}.{nearest(key, KEYS)}"
        )
    if scale not in (None, *SCALES):
        raise ValueError(
            f"`scale` must be one of {', '.join(SCALES)}, got {scale!r}.{nearest(scale, SCALES)}"
        )
    if key == COST:
        return _cost(results, scale)
    number, stand_in = key.removesuffix(_STAND_IN), key.endswith(_STAND_IN)
    without_paper = stand_in or number in _OURS
    rows: list[Row] = []
    for line in _lines(number, results, stand_in):
        runs = [r for r in results.named(line.recipe, scale) if r.stand_in == stand_in]
        others = results.changed_from(line.recipe, scale)
        changed = [r for r in others if r.stand_in == stand_in]
        scales = [s for s in SCALES if any(r.scale == s for r in (*runs, *changed))]
        for s in scales or (scale,):
            rows.append(_row(line, s, [r for r in runs if r.scale == s], without_paper))
            for made in dict.fromkeys(r.changes for r in changed if r.scale == s):
                alike = [r for r in changed if (r.scale, r.changes) == (s, made)]
                rows.append(_row(line.but(made), s, alike, without_paper))
    columns = COLUMNS
    title = _TITLES[number]
    notes = ["mean ± standard deviation over seeds"]
    if without_paper:
        columns = tuple(c for c in columns if "paper" not in c)
    if stand_in:
        title = title.replace("KTH", "clips that stand in for KTH")
        used = sorted({r.dataset for row in rows for r in results.named(row.data["recipe"], scale)})
        notes += [
            "not KTH, hence without the paper's numbers",
            *(f"clips: {name}" for name in used),
        ]
    elif any(row.data["scale"] == "quick" for row in rows):
        notes += ["quick runs are another, smaller task: no ratio"]
    notes += [
        f"{row.data['model']}: {', '.join(row.data['changes'])}"
        for row in rows
        if row.data["model"].endswith("…")
    ]
    notes += [
        f"{row.data['model']}: no seed {', '.join(map(str, row.data['missing_seeds']))}"
        for row in rows
        if row.data["n"] and row.data["missing_seeds"]
    ]
    return Table(key, title, columns, tuple(rows), tuple(notes))


@dataclass(frozen=True)
class _Line:
    """A row to be: its recipe, what is measured, and the paper's number where that is about it."""

    recipe: str
    section: str
    label: str
    unit: str
    seeds: int
    reported: paper.Value | None
    changes: tuple[str, ...] = ()

    def but(self, changes: tuple[str, ...]) -> "_Line":
        """The row of a changed recipe, which the paper does not have."""
        made = ", ".join(changes)
        short = made if len(made) <= _LABELLED else f"{made[: _LABELLED - 1]}…"
        label = f"{self.label}, {short}"
        return replace(self, label=label, reported=None, changes=changes)


def _lines(number: str, results: Results, stand_in: bool) -> list[_Line]:
    """The rows of a table, each of the paper's followed by its variants that have results."""
    if number in _OURS:
        ours = [r for name, r in recipes().items() if name.startswith(f"{number}/")]
        return [
            _Line(r.name, r.published.where, r.published.row, paper.MSE, r.seeds, None)
            for r in ours
        ]
    values = [v for v in paper.rows(number) if not stand_in or v.unit == paper.ACCURACY]
    bases = {v.recipe.replace("kth", "actions") if stand_in else v.recipe: v for v in values}
    known, lines = recipes(), []
    for base, value in bases.items():
        section = value.section.replace("KTH", "clips") if stand_in else value.section
        about = None if stand_in else value
        seeds = known[base].seeds if base in known else value.seeds or 1
        lines.append(_Line(base, section, value.row, value.unit, seeds, about))
        changed = (r.name for r in results.changed if r.name.startswith(base))
        for name in dict.fromkeys((*results.names(base), *changed)):
            if name == base or paper.base(name, bases) != base:
                continue
            variant = name.removeprefix(base).strip("-/").replace("-", " ")
            reported = name in known and known[name].published.mean is not None
            label = f"{value.row}, {variant}"
            about = value if reported else None
            lines.append(_Line(name, section, label, value.unit, seeds, about))
    return lines


def _row(line: _Line, scale: str | None, runs: Sequence[Result], without_paper: bool) -> Row:
    value = line.reported
    numbers = {r.seed: r.number(_METRICS[line.unit]) for r in runs}
    known = {seed: number for seed, number in numbers.items() if number is not None}
    mean, spread = mean_and_spread(list(known.values())) if known else (None, None)
    # How many seeds a changed recipe shall have is for whoever changed it to say.
    wanted = 0 if line.changes else max([r.seeds for r in runs] or [line.seeds])
    absent = [seed for seed in range(wanted) if seed not in known]
    # A quick run has a smaller canvas, fewer digits and a smaller V: its ratio would say nothing.
    ratio = None
    if mean is not None and value is not None and scale != "quick":
        ratio = mean / value.mean
    data: dict[str, Any] = {
        "section": line.section,
        "recipe": line.recipe,
        "model": line.label,
        "changes": line.changes,
        "unit": line.unit,
        "paper": None if value is None else {"mean": value.mean, "spread": value.spread},
        "ours": None if mean is None else {"mean": mean, "spread": spread},
        "ours_frame_sum": _frame_sum(runs),
        "n": len(known),
        "values": {str(seed): number for seed, number in known.items()},
        "missing_seeds": absent,
        "ratio": ratio,
        "learning_rates": sorted({r.learning_rate for r in runs}),
        "scale": scale,
        "epochs": sorted({int(r.record.get("epochs", 0)) for r in runs}),
        "hardware": sorted({r.hardware for r in runs}),
    }
    cells = [
        line.label,
        NONE if value is None else number_text(value.mean, value.spread, line.unit),
        MISSING if mean is None else number_text(mean, spread, line.unit, digits=2),
        NONE if ratio is None else f"{ratio:.2f}",
        f"{len(known)} of {max(wanted, len(known))}",
        scale or NONE,
        ", ".join(map(str, data["epochs"])) or NONE,
        ", ".join(data["hardware"]) or NONE,
    ]
    if without_paper:
        cells = [cells[0], cells[2], *cells[4:]]
    return Row(line.section, tuple(cells), data)


def _frame_sum(runs: Sequence[Result]) -> float | None:
    """The error in the unit of other work on Moving MNIST, summed over the pixels of a frame."""
    known = [value for r in runs if (value := r.number("test_mse_frame_sum")) is not None]
    return mean_and_spread(known)[0] if known else None


def _cost(results: Results, scale: str | None) -> Table:
    """What each model costs: parameters, arithmetic, speed and memory."""
    rows = []
    for at in SCALES if scale is None else (scale,):
        for name in results.names():
            runs = results.named(name, at)
            if runs:
                rows.append(_cost_row(name, at, runs))
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
    return Table(COST, "What training costs", columns, tuple(rows), notes)


def _cost_row(name: str, scale: str, runs: Sequence[Result]) -> Row:
    def mean(key: str) -> float | None:
        known = [float(r.record[key]) for r in runs if r.record.get(key) is not None]
        return mean_and_spread(known)[0] if known else None

    flops, memory = mean("flops_per_sequence"), mean("peak_memory_bytes")
    seconds, speed = mean("wall_seconds"), mean("sequences_per_second")
    parameters = runs[0].record.get("parameters")
    precision = sorted({str(r.record.get("precision")) for r in runs})
    hardware = sorted({r.hardware for r in runs})
    data = {
        "recipe": name,
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
        name,
        NONE if parameters is None else f"{parameters:,}".replace(",", " "),
        NONE if flops is None else f"{flops / 1e9:.3g}",
        NONE if speed is None else f"{speed:.3g}",
        NONE if memory is None else f"{memory / 2**30:.2f}",
        NONE if seconds is None else duration(seconds),
        ", ".join(precision),
        ", ".join(hardware),
    )
    return Row(f"scale: {scale}", cells, data | {"section": f"scale: {scale}"})
