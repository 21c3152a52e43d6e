"""Where the classifier's whole loop runs as few operators on a GPU, and the call of them.

The function is that of `Classifier.forward`, batch-norm and its running statistics included. The
encoder's first convolution is one product of gathered taps, the others read halo buffers, all of
it channels-last: nothing is padded. Nothing waits for the device, so a whole training step can be
captured in a CUDA graph.
"""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fernn.models._plain import encodes_plainly
from fernn.ops import flow_pool
from fernn.ops._backend import low_dtype
from fernn.ops.flow_step import choose

if TYPE_CHECKING:
    from fernn.models._classifier import Classifier

_FEW = 8  # channels of a frame whose patches are worth gathering


def fits(model: "Classifier", clip: Tensor) -> bool:
    """Whether `classify` computes `model` on `clip`: a recurrence that Triton can take.

    It takes two frames at least.
    """
    rnn = model.rnn
    kernels = rnn._stepwise or rnn._sliced or rnn._normed
    if not kernels or rnn.frame != "lab" or rnn.in_channels > _FEW:
        return False
    if clip.ndim != 5 or clip.shape[1] < 2:
        return False
    rnn._check_input("clip", clip, sequence=True)
    shift = rnn._shift.on(clip.device)
    chosen = choose(rnn.backend, clip[:, :1], rnn.kernels()[0][1], shift)
    return chosen == "triton" and encodes_plainly(model)


def classify(model: "Classifier", clip: Tensor) -> Tensor:
    """Clips [B, T, C, H, W] → logits [B, classes], as `Classifier.forward`."""
    from fernn.models import _scan  # Triton is imported by those who use it alone
    from fernn.ops._launch import reduce_shift

    rnn, kernels = model.rnn, model.rnn.kernels()
    drives = _encode(cast(nn.Sequential, rnn._layers()[0].input), clip, low_dtype(clip))
    if rnn._stepwise:
        shift = reduce_shift(rnn._shift.on(clip.device), clip.shape[-2:])
        seen = _scan.last_pooled(drives, kernels[0][1], shift)
    else:
        state = None
        for drive in drives.unbind():  # unbound before permuted: gradients are stacked as they lie
            state = rnn._advance(drive.permute(0, 3, 1, 2)[:, None], state, kernels)
        assert state is not None
        at_rest = torch.zeros_like(rnn._shift.on(clip.device))
        seen = flow_pool(state.lab(), at_rest).permute(0, 2, 3, 1)
    logits: Tensor = model.head(seen.mean((1, 2)))
    return logits


def _encode(encoder: nn.Sequential, clip: Tensor, dtype: torch.dtype) -> Tensor:
    """Clips [B, T, C, H, W] → features [T, B, H, W, K]."""
    from fernn.models._rollout import _columns, _taps
    from fernn.ops.torus_conv import torus_conv

    first, *convs = [layer for layer in encoder if isinstance(layer, nn.Conv2d)]
    norm, *norms = [layer for layer in encoder if isinstance(layer, nn.BatchNorm2d)]
    pixels = clip.to(dtype).permute(1, 0, 3, 4, 2)  # [T, B, H, W, C]
    patches = pixels.flatten(0, 1).flatten(1, 2)[:, _taps(first.weight, clip)].flatten(2)
    x = torch.matmul(patches, _columns(first.weight).T.to(dtype))  # [T·B, H·W, K]
    # shape: len() would fix the batch in a trace
    x = _normed(norm, x.reshape(x.shape[0], *clip.shape[3:], -1))
    for conv, norm in zip(convs, norms, strict=True):
        x = _normed(norm, torus_conv(x, conv.weight))
    return x.reshape(*pixels.shape[:4], -1)


def _normed(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch-norm and ReLU of [N, H, W, K]."""
    return torch.relu(norm(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
