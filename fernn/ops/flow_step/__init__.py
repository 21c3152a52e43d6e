"""`flow_step`: one step of the recurrence for every velocity at once, on a cyclic lattice."""

from torch import Tensor

from fernn import _check
from fernn._forward import forward_mode
from fernn.ops import _backend
from fernn.ops.flow_step import lean, reference
from fernn.ops.flow_step.reference import ACTIVATIONS

__all__ = ["ACTIVATIONS", "BACKENDS", "choose", "flow_step"]

BACKENDS = ("auto", "reference", "lean", "triton")


def flow_step(
    h: Tensor,
    kernel: Tensor,
    drive: Tensor,
    shift: Tensor,
    activation: str = "relu",
    *,
    backend: str = "auto",
) -> Tensor:
    """h_{t+1}(ν) = σ(ψ_1(ν)·[h_t ⋆ W](ν) + drive_t(ν)) with ψ_1(ν) a roll by shift[ν].

    Shapes: h [B, 1 or V, C, *X], kernel [K, C, *k] with equal odd k, drive [B, 1 or V, K, *X],
    integers shift [V, n] → [B, V, K, *X]. One slice of h stands for all, and is convolved once. A
    zero shift is the co-moving frame.

    - "reference" is the equation; "lean" keeps nothing but the states, on any device.
    - "triton" is for CUDA devices: one or two spatial axes of at least k − 1 pixels each, float32,
      float16 or bfloat16, Triton installed. Elsewhere it raises.
    - "auto" takes "triton" where it can run and the numbers of channels are multiples of 8, which
      the matrix units ask for, and "lean" elsewhere; "reference" in forward mode, which only that
      has.

    "triton" has first gradients alone: `torch.func.grad`, `torch.vmap` and a second backward pass
    raise there. Ask for backend="reference" to take them.
    """
    _check.choice("activation", activation, tuple(ACTIVATIONS))
    _check_shapes(h, kernel, drive, shift)
    backend = choose(backend, h, kernel, shift)
    if backend == "triton":
        from fernn.ops.flow_step import triton  # Triton is imported by those who use it alone

        return triton.flow_step(h, kernel, drive, shift, activation)
    step = lean.flow_step if backend == "lean" else reference.flow_step
    return step(h, kernel, drive, shift, activation)


def choose(backend: str, h: Tensor, kernel: Tensor, shift: Tensor) -> str:
    """The backend that runs when `backend` is asked for, by the rule that `flow_step` states."""
    _check.choice("backend", backend, BACKENDS)
    if backend not in ("auto", "triton"):
        return backend
    if backend == "auto" and forward_mode():
        return "reference"
    fits = _backend.runs(backend, _backend.obstacle(h, shift, radius=kernel.shape[-1] // 2))
    aligned = all(channels % _backend.ALIGNED == 0 for channels in kernel.shape[:2])
    return "triton" if fits and (aligned or backend == "triton") else "lean"


def _check_shapes(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor) -> None:
    """Raise unless the arguments of `flow_step` fit each other."""
    canvas, dim = h.shape[3:], h.ndim - 3
    size = _check.odd("kernel", kernel.shape[-1])
    if kernel.ndim != 2 + dim or kernel.shape[1] != h.shape[2]:
        raise ValueError(
            f"`kernel` must be [K, C, *k] with C = {h.shape[2]} and {dim} axes k for h "
            f"{tuple(h.shape)}, got shape {tuple(kernel.shape)}."
        )
    if any(side != size for side in kernel.shape[2:]):
        raise ValueError(f"`kernel` must have equal sides, got shape {tuple(kernel.shape)}.")
    if shift.ndim != 2 or shift.shape[1] != dim or h.shape[1] not in (1, len(shift)):
        wanted = f"[V, {dim}]" if h.shape[1] == 1 else f"[V, n] = {(h.shape[1], dim)}"
        raise ValueError(
            f"`shift` must be {wanted} for h {tuple(h.shape)}, got shape {tuple(shift.shape)}."
        )
    _check.whole("shift", shift)
    slices = (1, len(shift))
    if (
        drive.shape[0] != h.shape[0]
        or drive.shape[1] not in slices
        or drive.shape[2:] != (len(kernel), *canvas)
    ):
        raise ValueError(
            f"`drive` must be [B, 1 or V, K, *X] with K = {len(kernel)} for h {tuple(h.shape)}, "
            f"got shape {tuple(drive.shape)}."
        )
