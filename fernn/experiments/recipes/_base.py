"""What a recipe is: all that decides a run's outcome but the seed, in one frozen value."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from torch import nn

from fernn import _check
from fernn.experiments import paper
from fernn.experiments.recipes import _scales
from fernn.flows import Flow
from fernn.models import MODELS

SCALES = ("paper", "short", "quick")
TASKS = ("forecast", "classify")
KINDS = ("flowing", "bouncing", "clips")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Published:
    """Where the paper reports this row, and what: mean ± spread, None where it does not."""

    where: str
    row: str
    mean: float | None = None
    spread: float | None = None


def published(name: str, where: str, row: str) -> Published:
    """What the paper reports of the recipe of this name, if anything."""
    values = (value for value in paper.VALUES if value.recipe == name)
    return Published(where, row, *next(((v.mean, v.spread) for v in values), ()))


@dataclass(frozen=True)
class Data:
    """The dataset of a run: `kind` is "flowing", "bouncing" or "clips"; V of training and of test.

    Validation sequences move as those of training do. `redraw` and `switch` are those of
    `fernn.data.MovingClips`.
    """

    kind: str
    flow: Flow
    test_flow: Flow
    canvas: tuple[int, int]
    observed: int = 10
    horizon: int = 10
    redraw: bool = False
    switch: bool = False
    train_size: int | None = None
    """Sequences an epoch; None is as many as the split has. Clips always take all."""
    val_size: int | None = None
    test_size: int | None = None
    archive: str | None = None
    """The clips that the recipe is about: "kth", or "actions" for a stand-in, never confused."""

    def __post_init__(self) -> None:
        _check.choice("data.kind", self.kind, KINDS)
        _check.count("data.observed", self.observed, least=1)
        _check.count("data.horizon", self.horizon, least=1)
        for name in ("train_size", "val_size", "test_size"):
            if getattr(self, name) is not None:
                _check.count(f"data.{name}", getattr(self, name), least=1)
        if (self.kind == "clips") != (self.archive is not None):
            raise ValueError(
                '`data.archive` must be "kth" or "actions" for clips and None otherwise, got '
                f"{self.archive!r} with kind {self.kind!r}."
            )


@dataclass(frozen=True)
class Training:
    """How a run trains, with Adam. `schedule` is "constant" or "cosine", down to zero.

    `batch_size` counts the sequences of one optimiser step, over all devices together; `clip`
    bounds the norm of the gradient; over the first share `warmup` of all steps the learning rate
    rises from zero.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str = "constant"
    clip: float | None = None
    warmup: float = 0.0

    def __post_init__(self) -> None:
        _check.count("training.epochs", self.epochs, least=1)
        _check.count("training.batch_size", self.batch_size, least=1)
        _check.choice("training.schedule", self.schedule, SCHEDULES)
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"`training.{name}` must be a positive number, got {value!r}.")
        if not 0 <= self.warmup < 1:
            raise ValueError(
                "`training.warmup` must be a share of the steps, at least 0 and below 1, got "
                f"{self.warmup!r}."
            )

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of step number `step` out of `steps`: a function, so it has no state.

        >>> Training(1, 8, 1e-3, schedule="cosine").rate(50, 100)
        0.0005
        """
        warm = self.warmup * steps
        rate = self.learning_rate * min(1.0, (step + 1) / warm if warm else 1.0)
        if self.schedule == "constant":
            return rate
        return rate * (1 + math.cos(math.pi * step / steps)) / 2


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
    rates: tuple[float, ...] = ()
    """The learning rates to choose from on validation, where the paper did; see `search`."""
    scale: str = "paper"

    def __post_init__(self) -> None:
        if "\\" in self.name or {"", ".", ".."} & {*self.name.split("/")}:
            raise ValueError(  # it is a path below the folder of all runs, and stays there
                f"`name` must be words between slashes, such as table4/grnn, got {self.name!r}."
            )
        _check.choice("task", self.task, TASKS)
        _check.choice("model", self.model, tuple(MODELS))
        _check.choice("scale", self.scale, SCALES)
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    def __hash__(self) -> int:
        return hash((self.name, self.scale, self.data, self.training, *sorted(self.options)))

    def build(self) -> nn.Module:
        """The model with fresh weights from the global generator."""
        return MODELS[self.model](**self.options)

    def settings(self) -> dict[str, Any]:
        """Everything that decides a run's outcome by its key, the model's defaults filled in."""
        plain: dict[str, Any] = {"task": self.task, "model": self.model}
        for part in ("data", "training"):
            values = vars(getattr(self, part))
            plain |= {f"{part}.{name}": value for name, value in values.items()}
        arguments = inspect.signature(MODELS[self.model].__init__).parameters
        defaults = {
            name: argument.default
            for name, argument in arguments.items()
            if argument.default is not inspect.Parameter.empty
        }
        options = defaults | dict(self.options)
        return plain | {f"options.{name}": value for name, value in options.items()}

    def at(self, scale: str) -> "Recipe":
        """This recipe, made at scale "paper", at another one.

        - "short": ten epochs, of clips fifty, on a cosine schedule, the same model;
        - "quick": a small model on few sequences, for minutes on a processor without a GPU.
        """
        _check.choice("scale", scale, SCALES)
        if scale == self.scale:
            return self
        if self.scale != "paper":
            raise ValueError(
                f'`recipe` must be at scale "paper" to be scaled to {scale!r}, got '
                f"{self.name!r} at {self.scale!r}."
            )
        return _scales.short(self) if scale == "short" else _scales.quick(self)

    def but(self, **changes: Any) -> Self:
        """This recipe with some of it changed.

        A dictionary for `data`, `training` or `options` changes parts of that part:
        `recipe.but(name="…", options={"flow": flow}, training={"epochs": 10})`.
        """
        for part in ("data", "training", "published"):
            if isinstance(changes.get(part), dict):
                changes[part] = dataclasses.replace(getattr(self, part), **changes[part])
        if "options" in changes:
            changes["options"] = {**self.options, **changes["options"]}
        return dataclasses.replace(self, **changes)
