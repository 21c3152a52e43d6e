"""The paper's tables from records alone: its value, ours, and what is missing, side by side.

Rows measured on other clips than KTH's have tables of their own, such as "2-actions", without the
paper's column: the paper's numbers are KTH's. A changed recipe is a row of its own below the one it
was changed from, labelled with the change. Where only its training was changed, model and task are
still the paper's, and its number stands beside ours; otherwise not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fernn import _check
from fernn._nearest import nearest
from fernn.experiments import costs, paper
from fernn.experiments.numerals import number_text
from fernn.experiments.recipes import SCALES, of_training, recipes
from fernn.experiments.results import Result, Results, mean_and_spread
from fernn.experiments.tabular import (
    MISSING,
    NONE,
    NOT_FINITE,
    RATIO,
    Row,
    Table,
    settings_label,
    settings_lines,
)

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
    RATIO,
    "seeds",
    "epochs",
    "precision",
    "hardware",
    "data",
)
VARIANTS = {
    "-transported": "transported: reads out flow equivariantly; other rows as published",
    "-comoving": "comoving: ordinary convolutions in frames that turn, not the paper's network",
}
"""What the endings of recipes that the paper does not have mean; its number is of the plain one."""
_METRICS = {paper.MSE: "test_mse", paper.ACCURACY: "accuracy"}


def table(key: str, results: Results, *, scale: str | None = None) -> Table:
    """A table by its number, from runs at one scale: the given one, or the largest with runs."""
    return by_scale(key, results, scale=scale)[0]


def by_scale(key: str, results: Results, *, scale: str | None = None) -> list[Table]:
    """The table at each scale that has runs, the largest first, or at the given one alone.

    Runs at two scales are never in one table; where there is no run, one table is all missing.
    """
    if key not in KEYS:
        raise ValueError(
            f"`table` must be one of {', '.join(KEYS)}, got {key!r}.{nearest(key, KEYS)}"
        )
    if scale is not None:
        _check.choice("scale", scale, SCALES)
    scales = _scales(key, results) if scale is None else [scale]
    return [_at(s, key, results.at(s)) for s in scales or (None,)]


def stand_in(key: str, results: Results) -> str | None:
    """The key of the same table on the clips that stand in for KTH, where that has runs."""
    other = key + _STAND_IN
    return other if other in KEYS and _scales(other, results) else None


def _at(scale: str | None, key: str, results: Results) -> Table:
    if key == COST:
        return costs.table(COST, results, scale)
    number, stand_in = _parts(key)
    without_paper = stand_in or number in _OURS
    rows: list[Row] = []
    noted: list[tuple[str, ...]] = []
    for line in _lines(number, results, stand_in, scale):
        runs = [r for r in results.named(line.recipe) if r.stand_in == stand_in]
        rows.append(_row(line, scale, runs, results.data_of(runs), without_paper, noted))
        changed = [r for r in results.changed_from(line.recipe) if r.stand_in == stand_in]
        for made in dict.fromkeys(r.changes for r in changed):
            alike = [r for r in changed if r.changes == made]
            used = results.data_of(alike)
            rows.append(_row(line.but(made), scale, alike, used, without_paper, noted))
    columns = COLUMNS
    title = _TITLES[number]
    notes = ["mean ± standard deviation over seeds"]
    if without_paper:
        columns = tuple(c for c in columns if "paper" not in c)
    if stand_in:
        stands = "clips that stand in for KTH"
        title = title.replace("KTH", stands) if "KTH" in title else f"{title}, {stands}"
        notes += ["not KTH, hence without the paper's numbers"]
    elif scale == "quick":
        notes += ["quick runs are another, smaller task: no ratio"]
    shown = [row.data["recipe"] for row in rows if row.data["n"]]
    notes += [note for part, note in VARIANTS.items() if any(part in name for name in shown)]
    notes += [
        f"{row.data['model']}: no finite number, so in no mean, seed {', '.join(map(str, seeds))}"
        for row in rows
        if (seeds := row.data["not_finite"])
    ]
    notes += _missing_seeds(rows)
    for row in rows:
        if row.data["searched"]:
            rates = ", ".join(f"{rate:g}" for rate in row.data["learning_rates"])
            notes.append(f"{row.data['model']}: learning rate {rates}, searched for on validation")
    settings = settings_lines(noted)
    return Table(key, title, columns, tuple(rows), tuple(notes), scale, settings)


def _missing_seeds(rows: Sequence[Row]) -> list[str]:
    """Which seeds the measured rows lack; said once where it is the same for all of them.

    A changed recipe lacks none, and says nothing about the others.
    """
    plain = [row.data for row in rows if row.data["n"] and not row.data["changes"]]
    lacks = [(data["model"], tuple(data["missing_seeds"])) for data in plain]
    alike = len(lacks) > 1 and len({seeds for _, seeds in lacks}) == 1
    said = [("", seeds) for _, seeds in lacks[:1]] if alike else [(f"{m}: ", s) for m, s in lacks]
    return [f"{who}no seed {', '.join(map(str, seeds))}" for who, seeds in said if seeds]


def _scales(key: str, results: Results) -> list[str]:
    """The scales at which a table has runs, the largest first."""
    number, stand_in = _parts(key)
    names = {line.recipe for line in _lines(number, results, stand_in)}
    have = {
        r.scale
        for r in (*results.found, *results.changed)
        if key == COST or (r.name in names and r.stand_in == stand_in)
    }
    return [scale for scale in SCALES if scale in have]


def _parts(key: str) -> tuple[str, bool]:
    """The number of a table, and whether it is that of the stand-in for KTH."""
    return key.removesuffix(_STAND_IN), key.endswith(_STAND_IN)


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
        """The row of a changed recipe: of the paper's model and task only if trained otherwise."""
        reported = self.reported if of_training(changes) else None
        return replace(self, reported=reported, changes=changes)


def _lines(number: str, results: Results, stand_in: bool, scale: str | None = None) -> list[_Line]:
    """The rows of a table, each of the paper's followed by its variants that have results."""
    known = {name: recipe.at(scale or "paper") for name, recipe in recipes().items()}
    if number in _OURS:
        ours = [r for name, r in known.items() if name.startswith(f"{number}/")]
        return [
            _Line(r.name, r.published.where, r.published.row, paper.MSE, r.seeds, None)
            for r in ours
        ]
    values = [v for v in paper.rows(number) if not stand_in or v.unit == paper.ACCURACY]
    bases = {v.recipe.replace("kth", "actions") if stand_in else v.recipe: v for v in values}
    lines = []
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


def _row(
    line: _Line,
    scale: str | None,
    runs: Sequence[Result],
    used: Sequence[str],
    without_paper: bool,
    noted: list[tuple[str, ...]],
) -> Row:
    value = line.reported
    label = ", ".join(filter(None, (line.label, settings_label(line.changes, noted))))
    numbers = {r.seed: r.number(_METRICS[line.unit]) for r in runs}
    known = {seed: number for seed, number in numbers.items() if number is not None}
    mean, spread = mean_and_spread(list(known.values())) if known else (None, None)
    # How many seeds a changed recipe shall have is for whoever changed it to say.
    wanted = 0 if line.changes else max([r.seeds for r in runs] or [line.seeds])
    absent = [seed for seed in range(wanted) if seed not in numbers]
    failed = sorted(numbers.keys() - known.keys())
    times = [float(r.record["wall_seconds"]) for r in runs if r.record.get("wall_seconds")]
    # A quick run has a smaller canvas, fewer digits and a smaller V: its ratio would say nothing.
    ratio = None
    if mean is not None and value is not None and scale != "quick":
        ratio = mean / value.mean
    data: dict[str, Any] = {
        "section": line.section,
        "recipe": line.recipe,
        "model": label,
        "row": line.label,
        "changes": line.changes,
        "unit": line.unit,
        "paper": None if value is None else {"mean": value.mean, "spread": value.spread},
        "ours": None if mean is None else {"mean": mean, "spread": spread},
        "ours_frame_sum": _frame_sum(runs),
        "n": len(known),
        "values": {str(seed): number for seed, number in known.items()},
        "missing_seeds": absent,
        "not_finite": failed,
        "ratio": ratio,
        "learning_rates": sorted({r.learning_rate for r in runs}),
        "searched": any(r.searched for r in runs),
        "scale": scale,
        "epochs": sorted({int(r.record.get("epochs", 0)) for r in runs}),
        "precision": sorted({str(r.record.get("precision")) for r in runs}),
        "hardware": sorted({r.hardware for r in runs}),
        "data": list(used),
        "wall_seconds": mean_and_spread(times)[0] if times else None,
    }
    cells = [
        label,
        NONE if value is None else number_text(value.mean, value.spread, line.unit),
        (NOT_FINITE if failed else MISSING)
        if mean is None
        else number_text(mean, spread, line.unit, digits=2),
        NONE if ratio is None else f"{ratio:.2f}",
        f"{len(known)}" if line.changes else f"{len(known)} of {max(wanted, len(known))}",
        ", ".join(map(str, data["epochs"])) or NONE,
        ", ".join(data["precision"]) or NONE,
        ", ".join(data["hardware"]) or NONE,
        ", ".join(used) or NONE,
    ]
    if without_paper:
        cells = [cells[0], cells[2], *cells[4:]]
    return Row(line.section, tuple(cells), data)


def _frame_sum(runs: Sequence[Result]) -> float | None:
    """The error in the unit of other work on Moving MNIST, summed over the pixels of a frame."""
    known = [value for r in runs if (value := r.number("test_mse_frame_sum")) is not None]
    return mean_and_spread(known)[0] if known else None
