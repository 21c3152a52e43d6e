"""A whole forecast and its gradient as two operators: observe, predict, feed back.

Memory plan. Everything happens in the co-moving frame, where a state stays where it is and the
drive comes past it: state s of slice ν stands ψ_{s−1}(ν) behind the lab. So a convolution is read
and written at the same place, and `_hopper.py` can do a whole step in one kernel. h_1 does not
depend on ν, and neither does W ⋆ h_1: both are computed once, and the axis V opens at the second
state, as the outermost one. The states of all times lie in one buffer, and so do the decoder's
activations; a halo buffer lives only until the next step has read it.

Gradients stop at fed-back frames. So the decoder's backward pass, which would be many small
launches, runs once over the images of all times, and the recurrence's follows it, from G to G, as
`ops/README.md` derives. The weight gradient of the recurrence is taken over several times at once,
as many as make a large batch. The gradient of U is the sum of G over ν times the patches of the
frame, that of a bias the same sum times ones.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn.groups import roll_index
from fernn.ops._backend import ALIGNED
from fernn.ops._launch import index_dtype, operator
from fernn.ops.flow_step import _comoving, _step
from fernn.ops.flow_step._cudnn import adjoint_of, convolve, correlate, kernel_of

_PATCH = 16  # values that the matrix units sum over at once
_IMAGES = 3072  # a weight gradient over fewer leaves the device idle at its ends
_INDEX = 2**31  # values that cuDNN counts in one call


def forecast(
    video: Tensor,
    inner: Tensor,
    kernel: Tensor,
    decoder: list[Tensor],
    shift: Tensor,
    horizon: int,
    ahead: int,
    dtype: torch.dtype,
) -> Tensor:
    """Video [B, T, C, H, W], T > 1 → [B, horizon, C, H, W].

    `inner` and `kernel` are U and W, `decoder` the weight and bias of each convolution, `shift`
    [V, 2] from `reduce_shift`, `ahead` 1 for the transported readout and 0 for the published one.
    """
    learned = (inner, kernel, *decoder)
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in learned)
    out: Tensor = _forecast(video, inner, kernel, decoder, shift, horizon, ahead, dtype, keep)[0]
    return out[..., : video.shape[2]].permute(1, 0, 4, 2, 3)


@operator("fernn::forecast")
def _forecast(
    video: Tensor,
    inner: Tensor,
    kernel: Tensor,
    decoder: list[Tensor],
    shift: Tensor,
    horizon: int,
    ahead: int,
    dtype: torch.dtype,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = _outputs(video, inner, kernel, decoder, shift, horizon, ahead, dtype, keep)
    out, patches, first, states, bits, readouts, args, hidden, hidden_bits = made
    (_, frames, channels, *canvas), times = video.shape, len(patches)
    weight, layers = kernel_of(kernel, dtype), _layers(decoder, dtype)
    columns, taps = _columns(inner).to(dtype), _taps(inner, video)
    at, still = _comoving.positions(shift, times + ahead, canvas), torch.zeros_like(shift[:1])

    pixels = video.to(dtype).permute(1, 0, 3, 4, 2).flatten(2, 3)  # [T, B, H·W, C]
    patches[:frames] = pixels[:, :, taps].flatten(3)
    ones = _ones(patches, len(video), canvas)
    torch.clamp((patches[0] @ columns.T).view(first.shape), min=0, out=first)
    halo = _step.fill_halo(first, _room(first, weight))
    halos = [_room(states[0], weight) for _ in range(2)]
    rooms = [_room(first, layers[0][0]) for _ in range(2)]
    for t in range(1, times):  # from state t to state t + 1
        index = t - frames + ahead  # of the readout
        if t >= frames:
            if t > frames or ahead:
                patches[t] = out[index - 1].flatten(1, 2)[:, taps, :channels].flatten(2)
            else:
                patches[t] = patches[t - 1]  # the published form feeds the last frame twice
        slot, now, pool = (t - 1) % len(states), index % len(readouts), None
        if index >= 0:
            pool = _step.Pool(readouts[now], args[now], at[t + 1] if ahead else None)
        image, into = patches[t].unflatten(1, canvas), (states[slot], halos[t % 2], bits[slot])
        _comoving.advance(halo, weight, image, columns, at[t], *into, pool)
        halo = halos[t % 2]
        if index >= 0:
            x = _step.fill_halo(readouts[now][None], rooms[0])
            for i, (layer, bias) in enumerate(layers[:-1]):
                room = rooms[(i + 1) % 2]
                _comoving.advance(
                    x, layer, ones, bias, still, hidden[i, now], room, hidden_bits[i, now]
                )
                x = room
            layer, bias = layers[-1]
            frame = _step.Frame(still, still)
            drive = bias[None, None, :, 0, None, None]
            conv = convolve(x, layer).transpose(0, 1)
            _step.forward(conv, drive, frame, "identity", out[index, :, None])
    return made  # type: ignore[no-any-return]  # a decorator hides the type


@_forecast.register_fake
def _outputs(
    video: Tensor,
    inner: Tensor,
    kernel: Tensor,
    decoder: list[Tensor],
    shift: Tensor,
    horizon: int,
    ahead: int,
    dtype: torch.dtype,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Predictions [horizon, B, H, W, C'], and what the backward pass reads.

    Patches [S, B, H·W, P] of the frames that S states saw, h_1 [1, B, H, W, K], the other states
    [S − 1, V, B, H, W, K] and their bits, the readouts and the indices of their maxima, the
    decoder's activations and their bits; of the last time alone where nothing is kept.
    """
    batch, frames, channels, *canvas = video.shape
    times, width, layers = frames + horizon - ahead, len(kernel), len(decoder) // 2
    index = index_dtype(len(shift))

    def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return video.new_empty(shape, dtype=dtype)

    states = empty(times - 1 if keep else 1, len(shift), batch, *canvas, width)
    hidden = empty(layers - 1, horizon if keep else 1, 1, batch, *canvas, width)
    readouts = empty(hidden.shape[1], batch, *canvas, width)
    return (
        empty(horizon, batch, *canvas, channels + -channels % ALIGNED),
        empty(times, batch, canvas[0] * canvas[1], _reach(inner) * channels),
        empty(1, batch, *canvas, width),
        states,
        _step.empty_bits(states),
        readouts,
        torch.empty_like(readouts, dtype=index),
        hidden,
        _step.empty_bits(hidden),
    )


@operator("fernn::forecast_backward")
def _forecast_backward(
    grad: Tensor,
    inner: Tensor,
    kernel: Tensor,
    decoder: list[Tensor],
    shift: Tensor,
    ahead: int,
    patches: Tensor,
    first: Tensor,
    states: Tensor,
    bits: Tensor,
    readouts: Tensor,
    args: Tensor,
    hidden: Tensor,
    hidden_bits: Tensor,
) -> list[Tensor]:
    dtype, times, steps, canvas = first.dtype, len(patches), len(states), first.shape[2:4]
    grad_readouts, *grad_decoder = _decoder_backward(grad, decoder, readouts, hidden, hidden_bits)
    at, adjoint = _comoving.positions(shift, times + ahead, canvas), adjoint_of(kernel, dtype)
    grad_adjoint = torch.zeros_like(adjoint, dtype=torch.float32)
    grad_columns = torch.zeros_like(_columns(inner), dtype=torch.float32)
    several = max(2, min(steps, -(-_IMAGES // states.shape[1:3].numel())))
    ring = states.new_empty(several, *_room(states[0], adjoint).shape)
    halo: Tensor | None = None
    for t in reversed(range(1, times)):  # G of state t + 1, to stand beside state t
        slot, index = (t - 2) % several, t - times + len(readouts)
        to = at[t + 1] if ahead else None
        pool = _step.Pool(grad_readouts[index], args[index], to) if index >= 0 else None
        image = patches[t].unflatten(1, canvas)
        grad_columns += _comoving.retreat(
            halo, adjoint, pool, bits[t - 1], at[t], image, ring[slot]
        )
        halo = ring[slot]
        if slot == 0 and t > 1:
            many = min(several, steps + 1 - t)
            at_once = many if ring[:many].numel() < _INDEX else 1
            for h, g in zip(
                states[t - 2 : t - 2 + many].split(at_once), ring[:many].split(at_once), strict=True
            ):
                grad_adjoint += correlate(h.flatten(0, 1), g.flatten(0, 1), adjoint)
    assert halo is not None
    one = halo.sum(0, keepdim=True)  # one slice of h_1 fed every ν, so it collects from every ν
    grad_adjoint += correlate(first, one, adjoint)
    grad_first = torch.ops.aten.threshold_backward(convolve(one, adjoint), first, 0)
    grad_columns += grad_first.flatten(0, 3).T @ patches[0].flatten(0, 1)
    taps = inner[0, 0].numel()
    grad_inner = grad_columns.unflatten(1, (-1, inner.shape[1]))[:, :taps].transpose(1, 2)
    gradients = [grad_inner.reshape(inner.shape), _unflip(grad_adjoint), *grad_decoder]
    parameters = (inner, kernel, *decoder)  # compiled code counts on gradients laid out like them
    return [torch.empty_like(p).copy_(g) for p, g in zip(parameters, gradients, strict=True)]


@_forecast_backward.register_fake
def _(
    grad: Tensor, inner: Tensor, kernel: Tensor, decoder: list[Tensor], *_: object
) -> list[Tensor]:
    return [torch.empty_like(x) for x in (inner, kernel, *decoder)]


def _decoder_backward(
    grad: Tensor, decoder: list[Tensor], readouts: Tensor, hidden: Tensor, bits: Tensor
) -> list[Tensor]:
    """The gradients of the readouts and of each weight and bias, over all times at once."""
    horizon, batch, *canvas, _ = grad.shape  # times stand where the velocities of a state do
    seen = [readouts, *(x[:, 0] for x in hidden)]
    gradients = [grad.sum((0, 1, 2, 3), dtype=torch.float32)[: len(decoder[-1])]]
    halo = _step.fill_halo(grad, _room(grad, decoder[-2]))
    still, ones = grad.new_zeros(horizon, 2, dtype=torch.int32), _ones(grad, batch, canvas)
    for i in reversed(range(len(seen))):
        weight = _filled(decoder[2 * i])
        adjoint = adjoint_of(weight, grad.dtype)
        gradient = _unflip(correlate(seen[i], halo, adjoint).float())
        gradients.append(gradient[: len(decoder[2 * i])])
        if i > 0:
            new, on = _room(seen[i], weight), bits[i - 1][:, 0]
            gradients.append(_comoving.retreat(halo, adjoint, None, on, still, ones, new)[:, 0])
            halo = new
    return [convolve(halo, adjoint).reshape(readouts.shape), *reversed(gradients)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, inner, kernel, decoder, shift, _, ahead, *_ = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # zeros for the states would be as large as the states
    ctx.save_for_backward(inner, kernel, *decoder, shift, *output[1:])
    ctx.ahead, ctx.layers = ahead, len(decoder)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[object, ...]:
    if grad is None:
        return (None,) * 3 + ([None] * ctx.layers,) + (None,) * 5
    inner, kernel, *rest = ctx.saved_tensors
    decoder, (shift, *kept) = rest[: ctx.layers], rest[ctx.layers :]
    gradients = _forecast_backward(
        grad.contiguous(), inner, kernel, decoder, shift, ctx.ahead, *kept
    )
    return None, *gradients[:2], gradients[2:], *(None,) * 5


_forecast.register_autograd(_backward, setup_context=_setup_context)


def _room(h: Tensor, weight: Tensor) -> Tensor:
    """An empty halo buffer of h [V, B, H, W, K] for a convolution like `weight`."""
    return _step.empty_halo(h, weight, h.shape[1], h.shape[4])


def _ones(like: Tensor, batch: int, canvas: Sequence[int]) -> Tensor:
    """Patches that make a drive of a bias, and a bias' gradient of G: [B, H, W, P]."""
    return F.pad(like.new_ones(batch, *canvas, 1), (0, _PATCH - 1))


def _reach(kernel: Tensor) -> int:
    """The taps of U, filled up to what the matrix units sum over."""
    return max(_PATCH, 1 << (kernel[0, 0].numel() - 1).bit_length())


def _taps(kernel: Tensor, video: Tensor) -> Tensor:
    """Where U reads around every pixel of the torus: [H·W, n]."""
    radius = kernel.shape[-1] // 2
    reach = torch.arange(radius, -radius - 1, -1, device=video.device)
    index = roll_index(torch.cartesian_prod(reach, reach), tuple(video.shape[-2:]))
    return F.pad(index.T, (0, _reach(kernel) - len(index)))


def _columns(kernel: Tensor) -> Tensor:
    """U [K, C, ky, kx] → [K, n·C], to be multiplied with the patches.

    With so few channels a convolution is slower, and its gradient by far.
    """
    taps = kernel.flatten(2).transpose(1, 2)
    return F.pad(taps, (0, 0, 0, _reach(kernel) - taps.shape[1])).flatten(1)


def _filled(weight: Tensor) -> Tensor:
    """A kernel or bias of as many output channels as the matrix units take at once."""
    return F.pad(weight, (*(0, 0) * (weight.ndim - 1), 0, -len(weight) % ALIGNED))


def _layers(decoder: list[Tensor], dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """The kernel of every convolution, and its bias as columns whose patches are ones."""
    weights = [kernel_of(_filled(w), dtype) for w in decoder[::2]]
    biases = [F.pad(_filled(b)[:, None], (0, _PATCH - 1)).to(dtype) for b in decoder[1::2]]
    return list(zip(weights, biases, strict=True))


def _unflip(grad_adjoint: Tensor) -> Tensor:
    return grad_adjoint.transpose(0, 1).flip(2, 3)
