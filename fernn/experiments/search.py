"""The learning rate chosen on validation: trials of every rate, and a record of the choice.

A trial is an ordinary run, with its seed, checkpoints and record, so it goes on after a kill and is
not repeated, and at another rate than the recipe's own it lies where a changed recipe lies. The
choice, in `choice.json` beside the recipe's runs, is the rate of the lowest mean over seeds of the
best validation loss; tables and figures then take the runs at that rate. Nothing of the test split
is looked at.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fernn.experiments import records, runs
from fernn.experiments.recipes import Recipe

CHOICE = "choice.json"


def trials(recipe: Recipe) -> tuple[Recipe, ...]:
    """The recipe at each rate that it chooses from, or alone where it has none to choose from."""
    rates = recipe.rates or (recipe.training.learning_rate,)
    return tuple(recipe.but(training={"learning_rate": rate}) for rate in rates)


def choose(
    out: Path, recipe: Recipe, losses: Mapping[float, Sequence[float | None]]
) -> dict[str, Any]:
    """Choose a rate by its best validation losses, one a seed, and record the choice.

    A trial that diverged has no loss, and its rate cannot be chosen.
    """
    means = {
        rate: math.inf
        if None in seen
        else statistics.fmean(loss for loss in seen if loss is not None)
        for rate, seen in losses.items()
    }
    best = min(means, key=lambda rate: means[rate])
    if not math.isfinite(means[best]):
        raise ValueError(
            f"`rates` must have one at which no seed of {recipe.name!r} diverges, got "
            f"{', '.join(f'{rate:g}' for rate in losses)}."
        )
    choice: dict[str, Any] = {
        "name": recipe.name,
        "scale": recipe.scale,
        "by": "lowest mean over seeds of the best validation loss",
        "learning_rate": best,
        "trials": [
            {
                "learning_rate": rate,
                "val_loss": list(seen),
                "mean": means[rate] if math.isfinite(means[rate]) else None,
            }
            for rate, seen in losses.items()
        ],
        "environment": records.environment(),
    }
    records.write(_path(out, recipe), choice)
    return choice


def chosen(out: Path, recipe: Recipe) -> Recipe | None:
    """The recipe at the rate that was chosen for it, None where none was."""
    return _taken(_path(out, recipe), recipe)


def chosen_beside(record: Path, recipe: Recipe) -> Recipe | None:
    """The same for a run's record, wherever the folder of all runs begins.

    Runs may be looked at from a folder above it, and the choice lies beside them all the same.
    """
    homes = record.absolute().parents[1:3]  # of the recipe as it is, and of a changed one
    return next((found for home in homes if (found := _taken(home / CHOICE, recipe))), None)


def _taken(path: Path, recipe: Recipe) -> Recipe | None:
    if not path.is_file():
        return None
    return recipe.but(training={"learning_rate": float(runs.read_json(path)["learning_rate"])})


def _path(out: Path, recipe: Recipe) -> Path:
    return runs.home(out, recipe) / CHOICE
