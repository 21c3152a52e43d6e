"""The forecaster's loop on a GPU: states stay channels-last, halos and readouts come with the step.

The function is that of `Forecaster.forward` for one layer on a torus; the order of the axes and the
number of passes over memory differ, nothing else. h_1 does not depend on ν, and neither does
W ⋆ h_1: both are computed once, and the axis V opens at the second step. Nothing here waits for
the device, so a whole training step can be captured in a CUDA graph.
"""

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn.groups import roll_index
from fernn.ops import flow_pool
from fernn.ops.flow_step import choose

if TYPE_CHECKING:
    from fernn.models._forecaster import Forecaster
    from fernn.ops.flow_step.triton import Packed

_ALIGNED = 8  # matrix units take this many channels at once


def fits(model: "Forecaster", video: Tensor) -> bool:
    """Whether `forecast` computes `model` on `video`: a plain recurrence that Triton can take."""
    rnn = model.rnn
    if not rnn._stepwise or rnn.frame != "lab" or len(rnn.layers) > 1 or video.ndim != 5:
        return False
    if rnn.in_channels > _ALIGNED or rnn.activation != "relu":
        return False
    rnn._check_input("video", video, sequence=True)
    shift = rnn._shift.on(video.device)
    return choose(rnn.backend, video[:, :1], rnn.kernels()[0][1], shift) == "triton"


def forecast(model: "Forecaster", video: Tensor, horizon: int) -> Tensor:
    """Video [B, T, C, H, W] → [B, horizon, C, H, W], as `Forecaster.forward`.

    Gradients stop at fed-back frames, so the decoder may run twice: step by step for the frames
    that are fed back, and once over all steps for what is returned and differentiated. Launched
    from Python, a forward pass more costs less than a backward pass in small pieces; in a CUDA
    graph or a compiled one, where launches are cheap, it does not, and the decoder runs once.
    """
    from fernn.ops._launch import reduce_shift
    from fernn.ops.flow_step.triton import halo_of, pack, step

    rnn, published = model.rnn, model.readout == "published"
    inner, kernel = cast(tuple[Tensor, Tensor], rnn.kernels()[0])
    autocast = torch.is_autocast_enabled(video.device.type)
    dtype = torch.get_autocast_dtype(video.device.type) if autocast else video.dtype
    velocities = rnn._shift.on(video.device)
    packed, shift = pack(kernel, dtype), reduce_shift(velocities, video.shape[-2:])
    taps, layers = _taps(inner, video), _layers(model.decoder, dtype)

    drives = _drive(video, inner, taps, dtype)
    h = torch.relu(drives[0]).permute(0, 1, 3, 4, 2)  # [B, 1, H, W, K]
    if len(drives) == 1:
        h = h.expand(-1, len(shift), -1, -1, -1).contiguous()
    halo, seen = halo_of(h, packed), None
    for t, drive in enumerate(drives[1:], 2):
        pool = None if published or t < len(drives) else 1
        h, halo, seen = step(h, halo, packed, drive, shift, "relu", pool=pool)
    if seen is None and not published:
        seen = flow_pool(h.permute(0, 1, 4, 2, 3), velocities).permute(0, 2, 3, 1)

    again = torch.is_grad_enabled() and not _launches_are_cheap(video)
    drive = drives[-1]
    readouts: list[Tensor] = []
    predictions: list[Tensor] = []
    for index in range(horizon):
        if published or index > 0:
            pool = 0 if published else 1
            h, halo, seen = step(h, halo, packed, drive, shift, "relu", pool=pool)
        readouts.append(cast(Tensor, seen))
        with torch.set_grad_enabled(torch.is_grad_enabled() and not again):
            predictions.append(_decode(layers, readouts[-1], rnn.in_channels))
        if index + 1 < horizon:
            frame = predictions[-1].detach().to(video.dtype)
            (drive,) = _drive(frame[:, None], inner, taps, dtype)
    if not again:
        return torch.stack(predictions, 1)
    decoded = _decode(layers, torch.cat(readouts), rnn.in_channels)
    return decoded.reshape(horizon, *video.shape[:1], *decoded.shape[1:]).transpose(0, 1)


def _launches_are_cheap(x: Tensor) -> bool:
    return torch.compiler.is_compiling() or (x.is_cuda and torch.cuda.is_current_stream_capturing())


def _taps(kernel: Tensor, video: Tensor) -> Tensor:
    """Where U reads around every pixel of the torus, filled up to whole matrix units: [H·W, n]."""
    radius = kernel.shape[-1] // 2
    reach = torch.arange(radius, -radius - 1, -1, device=video.device)
    index = roll_index(torch.cartesian_prod(reach, reach), tuple(video.shape[-2:]))
    return F.pad(index.T, (0, -len(index) % _ALIGNED))


def _drive(frames: Tensor, kernel: Tensor, taps: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """U ⋆ f for every frame, [B, 1, K, H, W], as one product.

    With so few channels a convolution is slower, and its gradient by far.
    """
    columns = F.pad(kernel.flatten(2), (0, taps.shape[1] - kernel[0, 0].numel())).flatten(1)
    patches = frames.to(dtype).flatten(3)[..., taps].transpose(2, 3).flatten(3)  # [B, n, H·W, C·n]
    drive = torch.matmul(patches, columns.T.to(dtype))  # [B, n, H·W, K]
    return [
        d.reshape(len(d), 1, *frames.shape[3:], -1).permute(0, 1, 4, 2, 3) for d in drive.unbind(1)
    ]


def _layers(decoder: nn.Sequential, dtype: torch.dtype) -> "list[tuple[Packed, Tensor]]":
    """The decoder's convolutions as steps of one velocity, zero, with their biases as drives."""
    from fernn.ops.flow_step.triton import pack

    layers = []
    for conv in decoder:
        if isinstance(conv, nn.Conv2d):
            fill = -conv.out_channels % _ALIGNED
            kernel = F.pad(conv.weight, (0, 0, 0, 0, 0, 0, 0, fill))
            bias = F.pad(cast(Tensor, conv.bias), (0, fill))
            layers.append((pack(kernel, dtype), bias[None, None, :, None, None]))
    return layers


def _decode(layers: "list[tuple[Packed, Tensor]]", seen: Tensor, channels: int) -> Tensor:
    """Readouts [N, H, W, K] → images [N, C, H, W]."""
    from fernn.ops.flow_step.triton import step

    x, halo = seen[:, None], None
    still = torch.zeros(1, 2, dtype=torch.int32, device=seen.device)
    for index, (kernel, bias) in enumerate(layers):
        sigma = "relu" if index + 1 < len(layers) else "identity"
        x, halo, _ = step(x, halo, kernel, bias, still, sigma)
    return x[:, 0, ..., :channels].permute(0, 3, 1, 2)
