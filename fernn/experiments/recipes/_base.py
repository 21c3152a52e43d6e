"""What a recipe is: everything that decides a run's outcome, but for the seed, in one frozen value."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from torch import nn

from fernn.flows import Flow
from fernn.models import CNN3D, Classifier, Forecaster

SCALES = ("paper", "short", "quick")
TASKS = ("forecast", "classify")


@dataclass(frozen=True)
class Published:
    """Where the paper reports this row, and what it reports: mean ± spread, None where it does not."""

    where: str
    row: str
    mean: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Data:
    """The dataset of a run: `kind` is "flowing", "bouncing" or "clips"; V of training and of test."""

    kind: str
    flow: Flow
    test_flow: Flow
    canvas: tuple[int, int]
    observed: int = 10
    horizon: int = 10
    redraw: bool = False
    switch: bool = False
    train_size: int | None = None
    """Sequences an epoch; None is as many as the split has."""
    test_size: int | None = None


@dataclass(frozen=True)
class Training:
    """How a run trains. `schedule` is "constant" or "cosine", down to zero."""

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str = "constant"
    clip: float | None = None


@dataclass(frozen=True)
class Recipe:
    """One row of one table or figure at one scale: a complete configuration.

    `model` names a class of `fernn.models`, `options` are its arguments.
    """

    name: str
    published: Published
    task: str
    model: str
    data: Data
    training: Training
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    scale: str = "paper"

    def build(self) -> nn.Module:
        """The model with fresh weights from the global generator."""
        made: type[nn.Module] = {
            "Forecaster": Forecaster,
            "Classifier": Classifier,
            "CNN3D": CNN3D,
        }[self.model]
        return made(**self.options)

    def but(self, **changes: Any) -> Self:
        """This recipe with some of it changed.

        A dictionary for `data`, `training` or `options` changes parts of that part:
        `recipe.but(name="…", options={"flow": flow}, training={"epochs": 10})`.
        """
        for part in ("data", "training"):
            if isinstance(changes.get(part), dict):
                changes[part] = dataclasses.replace(getattr(self, part), **changes[part])
        if "options" in changes:
            changes["options"] = {**self.options, **changes["options"]}
        return dataclasses.replace(self, **changes)
