"""The scales below the paper's: `short`, with the same model, and `quick`, for a processor alone.

At `quick` everything that costs time shrinks by rule, so that a recipe is never written twice:
motion in one direction or in coarser turns, eighth-width models, shorter sequences, few of them.
"""

import math
from typing import TYPE_CHECKING, Any

from fernn.flows import Flow, Rotation, Translation
from fernn.groups import SE2

if TYPE_CHECKING:
    from fernn.experiments.recipes._base import Recipe

SHORT_EPOCHS = 10
QUICK_DEGREES = 30.0
QUICK_ORIENTATIONS = 12  # every turn of 30° is one of them


def short(recipe: "Recipe") -> "Recipe":
    """Ten epochs on a cosine schedule: within some factor of the paper's result, in a fifth of it.

    A schedule that ends at zero stands ten times the learning rate of forecasting.
    """
    faster = 10 if recipe.task == "forecast" else 1
    training = {
        "epochs": min(SHORT_EPOCHS, recipe.training.epochs),
        "schedule": "cosine",
        "learning_rate": recipe.training.learning_rate * faster,
    }
    return recipe.but(scale="short", training=training)


def quick(recipe: "Recipe") -> "Recipe":
    """About a minute on two cores, on the digits inside the package."""
    data: dict[str, Any] = {
        "flow": _thin(recipe.data.flow),
        "test_flow": _thin(recipe.data.test_flow),
    }
    options = dict(recipe.options)
    if "flow" in options:
        options["flow"] = _thin(options["flow"])
    if "hidden_channels" in options:
        options["hidden_channels"] = _narrow(options["hidden_channels"], options.get("flow"))
    training: dict[str, Any] = {"schedule": "cosine"}
    if recipe.task == "forecast":
        data |= {"observed": 5, "horizon": 5, "train_size": 800, "val_size": 64, "test_size": 128}
        if isinstance(recipe.data.flow, Rotation):
            data["canvas"] = (28, 28)  # a digit turns inside it
        options["decoder_layers"] = 1
        epochs = min(2, recipe.training.epochs)
        training |= {"epochs": epochs, "batch_size": 8, "learning_rate": 1e-2, "clip": 1.0}
        if options["flow"].group.order > 1:  # orientations take longer, and smaller steps
            data["train_size"], training["learning_rate"] = 600, 4e-3
    else:
        data["test_size"] = 128
        training |= {"epochs": 2, "batch_size": 16, "learning_rate": 1e-3}
    return recipe.but(scale="quick", data=data, options=options, training=training, seeds=1)


def _thin(flow: Flow) -> Flow:
    """Fewer velocities: columns alone for a translation, turns of 30° for a rotation."""
    if isinstance(flow, Translation):
        columns = sorted({velocity[-1] for velocity in flow.velocities.tolist()})
        return Translation(velocities=[(0, column) for column in columns])
    if isinstance(flow, Rotation):
        most = max(velocity for (velocity,) in flow.velocities.tolist())
        group = SE2(QUICK_ORIENTATIONS) if flow.group.order > 1 else None
        return Rotation(count=math.ceil(most / 20), degrees=QUICK_DEGREES, group=group)
    raise ValueError(f"`flow` must be a Translation or a Rotation, got {flow!r}.")


def _narrow(channels: int, flow: Flow | None) -> int:
    """An eighth of the channels; the larger baselines grow no more than fourfold here.

    Where a channel comes in twelve orientations, two of them are as many.
    """
    return 2 if flow is not None and flow.group.order > 1 else min(channels // 8, 64)
