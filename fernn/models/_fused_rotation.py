"""The forecaster's loop on a GPU in frames that turn: states stay channels-last and never move.

The function is that of `Forecaster.forward` for one layer in co-moving frames with zeros outside
the image; the order of the axes and the number of passes over memory differ, nothing else. At time
0 all frames coincide, so k_1 and W ⋆ k_1 are computed once, and the axis V opens at the second
step. Nothing here waits for the device, so a training step can be captured in a CUDA graph.
"""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fernn.groups import SE2
from fernn.models._plain import decodes_plainly
from fernn.ops._backend import low_dtype
from fernn.ops.comoving_step import choose

if TYPE_CHECKING:
    from fernn.models._forecaster import Forecaster
    from fernn.ops.conv_stack.triton import Memory


def fits(model: "Forecaster", video: Tensor) -> bool:
    """Whether `forecast` computes `model` on `video`: a plain recurrence that Triton can take."""
    rnn = model.rnn
    if not isinstance(rnn.flow.group, SE2) or rnn.frame != "comoving" or len(rnn.layers) > 1:
        return False
    if video.ndim != 5 or rnn.activation != "relu" or not decodes_plainly(model):
        return False
    rnn._check_input("video", video, sequence=True)
    conv = cast(nn.Conv2d, model.decoder[0])  # all have its kernel size and its channels
    return choose(rnn.backend, video, conv.kernel_size[0], conv.in_channels) == "triton"


def forecast(model: "Forecaster", video: Tensor, horizon: int) -> Tensor:
    """Video [B, T, C, H, W] → [B, horizon, C, H, W], as `Forecaster.forward`.

    The decoder runs frame by frame outside autograd, since gradients stop at fed-back frames, and
    enters it once for all of them.
    """
    from fernn.ops.comoving_step.triton import pack, step
    from fernn.ops.conv_stack.triton import joined, memory, run
    from fernn.ops.conv_stack.triton import pack as pack_stack
    from fernn.ops.warp_pool.triton import motion, warp

    rnn, flow, observed = model.rnn, model.flow, video.shape[1]
    group, published = cast(SE2, flow.group), model.readout == "published"
    inner, kernel = cast(tuple[Tensor, Tensor], rnn.kernels()[0])
    dtype = low_dtype(video)
    packed, decoder = pack(kernel, inner, dtype), pack_stack(model.decoder, dtype)
    times = torch.arange(observed + horizon, device=video.device)[:, None]
    moves = motion(flow.exp(flow.table(video.device), times), group)  # ψ_t(ν), [T, V, 5]
    returns = motion(flow.exp(flow.table(video.device), -times), group)

    # Before time 1 all frames coincide. A readout at once needs every slice, later steps do not.
    slices = len(flow) if observed == 1 and not published else 1
    first = video[:, 0, None].to(dtype).expand(-1, slices, -1, -1, -1)
    frames = [first, *(warp(video[:, 1:], returns[1:observed], dtype) if observed > 1 else ())]
    h: Tensor | None = None
    seen: Tensor | None = None
    for t, frame in enumerate(frames):
        wanted = moves[observed] if t == observed - 1 and not published else None
        h, seen = step(h, packed, frame, wanted, group.order)

    learned = (inner, kernel, *decoder.weights, *decoder.biases)
    training = torch.is_grad_enabled() and any(x.requires_grad for x in learned)
    kept: Memory | None = None
    readouts: list[Tensor] = []
    images: list[Tensor] = []
    image = video[:, -1]
    for index in range(horizon):
        if published or index > 0:
            t = observed + index - (0 if published else 1)
            (frame,) = warp(image[:, None].to(video.dtype), returns[t, None], dtype)
            h, seen = step(h, packed, frame, moves[observed + index], group.order)
        readouts.append(cast(Tensor, seen))
        if kept is None:
            kept = memory(readouts[0], len(decoder.low) - 1, horizon if training else 0)
        image = run(readouts[-1].detach(), decoder.low, decoder.offsets, decoder.side, *kept, index)
        images.append(image)
    if not training:
        return torch.stack(images, 1)
    decoded = joined(decoder, torch.cat(readouts), cast("Memory", kept), torch.cat(images))
    return decoded.reshape(horizon, *video.shape[:1], *decoded.shape[1:]).transpose(0, 1)
