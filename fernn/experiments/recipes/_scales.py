"""The scales below the paper's: `short`, with the same model, and `quick`, for a processor alone.

At `quick` everything that costs time shrinks by rule, so that a recipe is never written twice:
motion in one direction or in coarser turns, narrow models, shorter sequences, few of them.
"""

import math
from typing import TYPE_CHECKING, Any

from fernn.flows import Flow, Rotation, Translation
from fernn.groups import SE2

if TYPE_CHECKING:
    from fernn.experiments.recipes._base import Recipe

SHORT_EPOCHS = {"forecast": 10, "classify": 50}
SHORT_FASTER = 10
SHORT_BATCH = 128
SHORT_WARMUP = 0.05
SHORT_CLIP = 0.1
QUICK_DEGREES = 30.0
QUICK_ORIENTATIONS = 12  # every turn of 30° is one of them
GLIMPSES = {"canvas": (20, 20), "classes": 3}
"""The clips that a recipe takes at `quick` when it is not about KTH; see `glimpses`."""


def short(recipe: "Recipe") -> "Recipe":
    """A fraction of the epochs on a cosine schedule: within some factor of the paper's result.

    Ten epochs of digits, and fifty of clips, of which there are some sixty times fewer. A schedule
    that ends at zero stands ten times the learning rate of forecasting at a batch of 128, and less
    by the square root where a batch is smaller. It rises to it first: at that rate from the start a
    G-RNN's loss explodes within its first epoch. A gradient is clipped that is several times what
    it usually is, for otherwise that of rotating digits explodes later.
    """
    training = {
        "epochs": min(SHORT_EPOCHS[recipe.task], recipe.training.epochs),
        "schedule": "cosine",
        "warmup": SHORT_WARMUP,
    }
    if recipe.task == "forecast":
        faster = SHORT_FASTER * math.sqrt(recipe.training.batch_size / SHORT_BATCH)
        training["learning_rate"] = recipe.training.learning_rate * faster
        training["clip"] = recipe.training.clip or SHORT_CLIP
    return recipe.but(scale="short", training=training)


def quick(recipe: "Recipe") -> "Recipe":
    """At most a minute of one core, on the digits inside the package."""
    # A camera so fast that a recurrence of 3×3 cannot follow it.
    faster = 3 if recipe.task == "classify" else 1
    data: dict[str, Any] = {
        "flow": _thin(recipe.data.flow, faster),
        "test_flow": _thin(recipe.data.test_flow, faster),
    }
    options = dict(recipe.options)
    if "flow" in options:
        options["flow"] = _thin(options["flow"], faster)
    training: dict[str, Any] = {"schedule": "cosine", "batch_size": 4}
    if recipe.task == "forecast":
        _forecast(recipe, data, options, training)
    else:
        _classify(recipe, data, options, training)
    rates = tuple(training["learning_rate"] * share for share in (1, 0.4) if recipe.rates)
    made = recipe.but(scale="quick", data=data, options=options, training=training)
    return made.but(seeds=1, rates=rates)


def _forecast(
    recipe: "Recipe", data: dict[str, Any], options: dict[str, Any], training: dict[str, Any]
) -> None:
    data |= {"observed": 5, "horizon": 5, "train_size": 800, "val_size": 64, "test_size": 128}
    options["decoder_layers"] = 1
    options["hidden_channels"] = min(options["hidden_channels"] // 8, 64)
    epochs = min(2, recipe.training.epochs)
    # Clipped short at a large rate: few steps reach far, and long forecasts stay bounded.
    training |= {"epochs": epochs, "learning_rate": 1e-2, "clip": 0.03}
    if isinstance(recipe.data.flow, Rotation):
        data["canvas"] = (28, 28)  # a digit turns inside it
    if options["flow"].group.order > 1:  # orientations take longer, and smaller steps
        data["train_size"], training["learning_rate"] = 600, 4e-3
        options["hidden_channels"] = 2  # in twelve orientations each
    if recipe.data.kind == "bouncing":
        # Free flight between the collisions, too fast for a recurrence of 3×3 to follow.
        data |= {"canvas": (28, 112), "observed": 4, "horizon": 3, "train_size": 600}
        data |= {"flow": _fast(recipe.data.flow), "test_flow": _fast(recipe.data.test_flow)}
        options["flow"] = _fast(recipe.options["flow"])
        if recipe.options.get("mixing") is not None:  # a convolution for each difference of two ν
            options["hidden_channels"] //= 2


def _classify(
    recipe: "Recipe", data: dict[str, Any], options: dict[str, Any], training: dict[str, Any]
) -> None:
    data["test_size"] = 240
    if "hidden_channels" in options:  # the larger baseline grows no more than eightfold here
        options["hidden_channels"] = min(options["hidden_channels"] // 16, 64)
    training |= {"epochs": 2, "learning_rate": 5e-3, "clip": 1.0}
    if recipe.data.archive != "kth":
        data["canvas"], options["classes"] = GLIMPSES["canvas"], GLIMPSES["classes"]
        training["epochs"] = 8


def _thin(flow: Flow, faster: int) -> Flow:
    """Fewer velocities: columns alone for a translation, turns of 30° for a rotation."""
    if isinstance(flow, Translation):
        columns = sorted({faster * velocity[-1] for velocity in flow.velocities.tolist()})
        return Translation(velocities=[(0, column) for column in columns])
    if isinstance(flow, Rotation):
        most = max(velocity for (velocity,) in flow.velocities.tolist())
        group = SE2(QUICK_ORIENTATIONS) if flow.group.order > 1 else None
        return Rotation(count=math.ceil(most / 20), degrees=QUICK_DEGREES, group=group)
    raise ValueError(f"`flow` must be a Translation or a Rotation, got {flow!r}.")


def _fast(flow: Flow) -> Translation:
    """Three velocities: rest, and twice the fastest along the columns, there and back."""
    fastest = max(abs(int(velocity[-1])) for velocity in flow.velocities.tolist())
    return Translation(velocities=[(0, v) for v in sorted({-2 * fastest, 0, 2 * fastest})])
