"""What a run makes small: the loss of a recipe on a batch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn.data import Batch
from fernn.experiments.recipes import Recipe


def loss(recipe: Recipe, model: nn.Module, batch: Batch) -> Tensor:
    """Mean squared error over the frames to forecast, or cross entropy of the classes."""
    if recipe.task == "classify":
        return F.cross_entropy(model(batch.frames), batch.labels)
    observed, horizon = recipe.data.observed, recipe.data.horizon
    forecast, future = model(batch.frames[:, :observed], horizon), batch.frames[:, observed:]
    wide = torch.promote_types(forecast.dtype, future.dtype)  # autocast forecasts in half precision
    return F.mse_loss(forecast.to(wide), future.to(wide))


def parts(batch: Batch, size: int) -> list[Batch]:
    """A batch in parts of at most `size` sequences."""
    pieces = zip(*(tensor.split(size) for tensor in batch), strict=True)
    return [Batch(*piece) for piece in pieces]
