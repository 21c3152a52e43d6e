"""Results: the records of finished runs, found in a folder of runs and grouped by recipe."""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fernn.experiments import search
from fernn.experiments.recipes import (
    SCALES,
    Recipe,
    changed,
    changes,
    from_json,
    of_training,
    recipes,
)
from fernn.experiments.runs import BEST, RECORD, RUNS, holds, read_json
from fernn.models._pretrained import pretrained, pretrained_record, weights_path

KTH = "kth"
_RATE = "training.learning_rate"


@dataclass(frozen=True)
class Result:
    """One finished run: its folder and what it recorded."""

    folder: Path
    record: dict[str, Any] = field(repr=False)
    changes: tuple[str, ...] = ()
    """What its recipe had that the recipe of this name has not, as `--set` takes it."""
    searched: bool = False
    """Whether its learning rate was searched for, on validation."""

    @property
    def name(self) -> str:
        return str(self.record["name"])

    @property
    def scale(self) -> str:
        return str(self.record["scale"])

    @property
    def seed(self) -> int:
        return int(self.record["seed"])

    @property
    def metrics(self) -> dict[str, Any]:
        return dict(self.record.get("metrics") or {})

    @property
    def curve(self) -> list[dict[str, Any]]:
        return list(self.record.get("curve") or [])

    @property
    def hardware(self) -> str:
        """The GPU that the run used, or the CPU."""
        about = self.record.get("environment") or {}
        on_gpu = str(self.record.get("device", "cpu")).startswith("cuda")
        name = str((about.get("gpu") if on_gpu else about.get("cpu")) or "unknown")
        return " ".join(re.sub(r"\((R|TM|tm|r)\)|\bCPU\b|\bProcessor\b", " ", name).split())

    @property
    def data(self) -> str:
        """What its sequences were made from, in a word."""
        return str(self.record.get("data") or "unknown")

    def same_data(self, other: "Result") -> bool:
        """By content where both records know that, by name where one of them is too old to."""
        ours, theirs = (r.record.get("data_sha256") for r in (self, other))
        return self.data == other.data if None in (ours, theirs) else bool(ours == theirs)

    @cached_property
    def weights(self) -> Path | None:
        """Its best weights: beside its record, or in the package where they were published."""
        if holds(self.folder, self.record):
            return self.folder / BEST
        name = published(self.record)
        return None if name is None else weights_path(name)

    @property
    def learning_rate(self) -> float:
        return float(self.record["recipe"]["training"]["learning_rate"])

    @property
    def seeds(self) -> int:
        """How many seeds its recipe asks for."""
        return int((self.record.get("recipe") or {}).get("seeds", 1))

    @property
    def stand_in(self) -> bool:
        """Whether it classifies clips that are not KTH's.

        What it was evaluated on decides as well as what its recipe is about: a recipe for KTH that
        was given other clips is not a result on KTH.
        """
        recipe = self.record.get("recipe") or {}
        if recipe.get("task") != "classify":
            return False
        about = (recipe.get("data") or {}).get("archive", KTH)
        return bool(about != KTH or self.metrics.get("dataset", KTH) != KTH)

    def number(self, metric: str) -> float | None:
        """A metric where it was measured and is finite."""
        value = self.metrics.get(metric)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)


def _had(result: Result) -> Recipe:
    """The recipe as it was trained."""
    return from_json(result.record["recipe"])


def published(record: dict[str, Any]) -> str | None:
    """The name of the weights in the package whose record has all of this one, and more."""
    for name in pretrained():
        about = pretrained_record(name)
        if all(about.get(key) == value for key, value in record.items()):
            return name
    return None


@dataclass(frozen=True)
class Results:
    """All results below a folder: those of the recipes as they are, those of changed ones, which
    are never taken for them, and what is left out, each with the reason."""

    found: tuple[Result, ...]
    left_out: tuple[str, ...] = ()
    changed: tuple[Result, ...] = ()
    folder: Path = RUNS
    settings: tuple[str, ...] = ()
    """What was asked of the training of those that are found; see `set_to`."""

    @property
    def every(self) -> tuple[Result, ...]:
        """All of them in the order of the recipes, changed ones after the plain."""
        return tuple(_in_order((*self.found, *self.changed)))

    def named(self, name: str, scale: str | None = None) -> list[Result]:
        """The runs of one recipe, by scale and seed."""
        return [r for r in self.found if r.name == name and scale in (None, r.scale)]

    def changed_from(self, name: str) -> list[Result]:
        """The runs of recipes that were changed from one."""
        return [r for r in self.changed if r.name == name]

    def data_of(self, runs: Iterable[Result]) -> list[str]:
        """What some of these runs were made from; archives that share a name with their SHA-256."""
        contents: dict[str, set[object]] = {}
        for r in self.every:
            contents.setdefault(r.data, set()).add(r.record.get("data_sha256"))
        return sorted(
            {
                f"{r.data} ({str(r.record['data_sha256'])[:7]})"
                if len(contents[r.data] - {None}) > 1 and r.record.get("data_sha256")
                else r.data
                for r in runs
                if r.record.get("data")
            }
        )

    def at(self, scale: str | None) -> "Results":
        """The runs at one scale alone."""
        found, changed = ([r for r in s if r.scale == scale] for s in (self.found, self.changed))
        return replace(self, found=tuple(found), changed=tuple(changed))

    def set_to(self, settings: Sequence[str]) -> "Results":
        """Of all these runs those that were trained as these settings ask, in place of plain ones.

        A run is one of them whether it was set or its recipe says so.
        """
        known = recipes()
        for setting in settings:
            changed(next(iter(known.values())), [setting])  # refused also where there is no run
            if not of_training([setting]):
                raise ValueError(
                    "`--set` must be of training, such as training.epochs=3, for what is drawn is "
                    f"named after the recipes' models and data, got {setting!r}."
                )
        alike = (
            r
            for r in self.every
            if r.name in known
            and not changes(_had(r), changed(known[r.name].at(r.scale), settings))
        )
        return replace(self, found=tuple(alike), changed=(), settings=tuple(settings))

    def by_settings(self) -> list["Results"]:
        """The runs whose training alone was changed, each scale and change by itself, with the
        settings by which `set_to` finds them."""
        known = recipes()
        groups: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
        for r in self.changed:
            settings = changes(_had(r), known[r.name].at(r.scale))
            if settings and of_training(settings):
                groups.setdefault((r.scale, settings), []).append(r)
        return [
            replace(self, found=tuple(runs), changed=(), settings=settings)
            for (_, settings), runs in groups.items()
        ]

    @property
    def largest_scale(self) -> str | None:
        """The largest scale that any run has, None where there is no run."""
        have = {r.scale for r in self.every}
        return next((scale for scale in SCALES if scale in have), None)

    def names(self, prefix: str = "") -> list[str]:
        """The recipes that have results, below a prefix such as "table1/rotation/", in order."""
        return list(dict.fromkeys(r.name for r in self.found if r.name.startswith(prefix)))


def load(runs: Path = RUNS) -> Results:
    """Every record below `runs`; where a learning rate was searched for, at the chosen one."""
    found, left_out = [], []
    known = recipes()
    for path in sorted(runs.rglob(RECORD)):
        try:
            record = read_json(path)
            made: tuple[str, ...] = ()
            picked = None
            if record["name"] in known:
                recipe = known[record["name"]].at(record["scale"])
                picked = search.chosen_beside(path, recipe)
                had = from_json(record["recipe"])
                made = changes(had, picked or recipe)
                rate = had.training.learning_rate
                if picked and made == (f"{_RATE}={rate}",) and rate in recipe.rates:
                    continue  # a trial of the search that another rate won
            result = Result(path.parent, record, made, searched=_searched(picked, made))
            _ = result.seed
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            left_out.append(f"{path} cannot be read: {type(error).__name__}: {error}")
            continue
        found.append(result)
    alike = _alike(_in_order(found), left_out)
    return Results(
        tuple(r for r in alike if not r.changes),
        tuple(left_out),
        tuple(r for r in alike if r.changes),
        runs,
    )


def _searched(picked: Recipe | None, made: tuple[str, ...]) -> bool:
    """Whether a run has the rate that was chosen for its recipe."""
    return picked is not None and not any(change.startswith(_RATE) for change in made)


def _in_order(runs: Iterable[Result]) -> list[Result]:
    """By recipe and scale, of one recipe the plain runs first, then by seed."""
    order = {name: place for place, name in enumerate((*recipes(), *SCALES))}
    last = len(order)  # for recipes that are not this package's own

    def place(r: Result) -> tuple[Any, ...]:
        row = (order.get(r.name, last), r.name, order.get(r.scale, last))
        return (*row, r.changes, r.seed)

    return sorted(runs, key=place)


def _alike(found: Iterable[Result], left_out: list[str]) -> list[Result]:
    """Each run once, and the seeds of a row on the same data, that of most of them; what is left
    out is told."""
    rows: dict[tuple[object, ...], dict[int, Result]] = {}
    for r in found:
        first = rows.setdefault((r.name, r.scale, r.changes), {}).setdefault(r.seed, r)
        if first is not r:
            left_out.append(f"{r.folder} is the same run as {first.folder}")
    kept = []
    for row in (list(seeds.values()) for seeds in rows.values()):
        usual = max(row, key=lambda r: sum(map(r.same_data, row)))  # the first of several
        for r in row:
            if r.same_data(usual):
                kept.append(r)
                continue
            other = f"other data of the name {r.data}" if r.data == usual.data else r.data
            left_out.append(f"{r.folder} is on {other}, and seed {usual.seed} on {usual.data}")
    return kept


def load_one(folder: Path) -> Result:
    """The result in one run's folder."""
    path = folder / RECORD if folder.is_dir() else folder
    if path.name != RECORD or not path.is_file():
        raise FileNotFoundError(
            f"`run` must be the folder of a finished run, with a {RECORD}, got {str(folder)!r}."
        )
    return Result(path.parent, read_json(path))


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation over seeds; one seed has no spread.

    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    >>> mean_and_spread([1.0])
    (1.0, None)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
