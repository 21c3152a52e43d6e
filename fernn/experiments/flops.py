"""FLOPs: what one training sequence of a recipe costs in convolutions and matrix products."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fernn.experiments.recipes import Recipe

CLIP_LENGTH = 16  # frames of a labelled clip


def flops_per_sequence(recipe: Recipe) -> float:
    """Floating-point operations of one sequence, forward and backward.

    Counted on the equation itself, whatever backend runs it; a multiplication and an addition are
    two operations. Shifts, interpolation and activations are not counted: they cost memory traffic,
    not arithmetic. What a step does once for a whole batch, as expanding a kernel, is not counted
    either, so this is what two sequences cost more than one.
    """
    model = _on_meta(recipe)
    one, two = (_count(model, recipe, batch) for batch in (1, 2))
    return float(two - one)


def _on_meta(recipe: Recipe) -> nn.Module:
    """The recipe's model without memory for its weights, in plain torch operations."""
    if recipe.model in ("Forecaster", "Classifier"):
        recipe = recipe.but(options={"backend": "reference"})
    with torch.device("meta"):
        return recipe.build()


def _count(model: nn.Module, recipe: Recipe, batch: int) -> int:
    data = recipe.data
    forecast = recipe.task == "forecast"
    frames = data.observed if forecast else CLIP_LENGTH
    video = torch.empty(batch, frames, 1, *data.canvas, device="meta")
    with FlopCounterMode(display=False) as counter:
        out = model(video, data.horizon) if forecast else model(video)
        out.sum().backward()
    return int(counter.get_total_flops())
