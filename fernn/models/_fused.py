"""Where the forecaster's whole loop runs as one operator on a GPU, and the call of it.

The function is that of `Forecaster.forward` for one layer on a torus; the frame, the order of the
axes and the number of passes over memory differ, nothing else. Nothing waits for the device, so a
whole training step can be captured in a CUDA graph.
"""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fernn.models._plain import decodes_plainly
from fernn.ops._backend import low_dtype
from fernn.ops.flow_step import choose

if TYPE_CHECKING:
    from fernn.models._forecaster import Forecaster

_FEW = 8  # channels of a frame whose patches are worth gathering


def fits(model: "Forecaster", video: Tensor) -> bool:
    """Whether `forecast` computes `model` on `video`: a plain recurrence that Triton can take.

    It takes two frames at least, for h_1 does not depend on ν, and gives no gradient of the video.
    """
    rnn = model.rnn
    if not rnn._stepwise or rnn.frame != "lab" or len(rnn.layers) > 1 or video.ndim != 5:
        return False
    if rnn.in_channels > _FEW or rnn.activation != "relu":
        return False
    if video.shape[1] < 2 or (video.requires_grad and torch.is_grad_enabled()):
        return False
    rnn._check_input("video", video, sequence=True)
    shift = rnn._shift.on(video.device)
    chosen = choose(rnn.backend, video[:, :1], rnn.kernels()[0][1], shift)
    return chosen == "triton" and decodes_plainly(model)


def forecast(model: "Forecaster", video: Tensor, horizon: int) -> Tensor:
    """Video [B, T, C, H, W] → [B, horizon, C, H, W], as `Forecaster.forward`."""
    from fernn.models import _rollout  # Triton is imported by those who use it alone
    from fernn.ops._launch import reduce_shift

    rnn = model.rnn
    inner, kernel = cast(tuple[Tensor, Tensor], rnn.kernels()[0])
    dtype = low_dtype(video)
    shift = reduce_shift(rnn._shift.on(video.device), video.shape[-2:])
    decoder = [
        parameter
        for layer in model.decoder
        if isinstance(layer, nn.Conv2d)
        for parameter in (layer.weight, cast(Tensor, layer.bias))
    ]
    ahead = 0 if model.readout == "published" else 1
    return _rollout.forecast(video, inner, kernel, decoder, shift, horizon, ahead, dtype)
