"""What a run left behind, for the commands that take its weights."""

from pathlib import Path
from typing import Any

from torch import nn

from fernn import models
from fernn._nearest import nearest
from fernn.experiments import results, runs
from fernn.experiments.recipes import Recipe


def kept(run: Path) -> tuple[nn.Module, Recipe, dict[str, Any]]:
    """The model that a run kept, its recipe, and its record, empty before it has finished."""
    if not runs.is_run(run):
        names = models.pretrained()
        hint = nearest(str(run), names)
        if run.is_file():
            hint = " A file alone has no recipe to evaluate it by; `fernn verify` takes one."
        elif below := runs.below(run):
            hint = f" A run in it is {below[0]}; `fernn show {run}` names all of them."
        raise FileNotFoundError(
            f"`run` must be a folder that `fernn train` made or one of {', '.join(names)}, got "
            f"{str(run)!r}.{hint}"
        )
    record = runs.read_record(run)
    if not (run / runs.BEST).is_file():
        why = "has it finished an epoch?"
        if record is not None:
            why = "a record alone, which `fernn show` prints."
            name = results.published(record)
            why += f" Its weights are in the package, by the name {name}." if name else ""
        raise FileNotFoundError(
            f"`run` must have weights, got {str(run)!r} without {runs.BEST}: {why}"
        )
    model = models.load(runs.check_weights(run, record)).float()  # as a run evaluates it
    return model, runs.read_recipe(run), record or {}
