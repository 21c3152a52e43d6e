"""A prediction from a state on a GPU, for forecasters whose loop is not one operator.

The readout is one pass over the states, which also moves them, and the decoder stays channels-last
and is never padded. The function is that of `Forecaster.forward`.
"""

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn.flows import Translation
from fernn.models._plain import decodes_plainly
from fernn.ops import flow_pool
from fernn.ops._backend import ALIGNED, low_dtype, obstacle, runs

if TYPE_CHECKING:
    from fernn.models._forecaster import Forecaster
    from fernn.nn._state import State


def fits(model: "Forecaster", state: "State") -> bool:
    """Whether `predict` computes the prediction: images on a torus, in lab coordinates."""
    h, shift = state.tensors[-1], model.flow.table(state.tensors[-1].device)
    return (
        isinstance(model.flow, Translation)
        and state.frame == "lab"
        and h.ndim == 5
        and decodes_plainly(model)
        and runs(model.rnn.backend, obstacle(h, shift, radius=model.kernel_size // 2))
    )


def predict(model: "Forecaster", state: "State", ahead: int) -> Tensor:
    """g(max_ν ψ_ahead(ν)·h(ν)): [B, C, H, W]."""
    from fernn.ops.torus_conv import torus_conv  # Triton is imported by those who use it alone

    h = state.tensors[-1]
    x = flow_pool(h, ahead * model.flow.table(h.device)).permute(0, 2, 3, 1).to(low_dtype(h))
    *hidden, last = [layer for layer in model.decoder if isinstance(layer, nn.Conv2d)]
    for conv in hidden:
        x = torch.relu(torus_conv(x, conv.weight) + cast(Tensor, conv.bias).to(x.dtype))
    filled = F.pad(last.weight, (0, 0, 0, 0, 0, 0, 0, -last.out_channels % ALIGNED))
    image = torus_conv(x, filled)[..., : last.out_channels] + cast(Tensor, last.bias).to(x.dtype)
    return image.permute(0, 3, 1, 2)
