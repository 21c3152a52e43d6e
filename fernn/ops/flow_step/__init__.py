"""`flow_step`: one step of the recurrence for every velocity at once, on a cyclic lattice."""

from torch import Tensor

from fernn import _check
from fernn.ops.flow_step import lean, reference
from fernn.ops.flow_step.reference import ACTIVATIONS

__all__ = ["ACTIVATIONS", "BACKENDS", "flow_step"]

_BACKENDS = {"reference": reference.flow_step, "lean": lean.flow_step}
BACKENDS = ("auto", *_BACKENDS)


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

    Shapes: h [B, V, C, *X], kernel [K, C, *k] with odd k, drive [B, 1 or V, K, *X], shift [V, n]
    → [B, V, K, *X]. A zero shift is the co-moving frame. `backend="auto"` picks "lean".
    """
    _check.choice("backend", backend, BACKENDS)
    _check.choice("activation", activation, tuple(ACTIVATIONS))
    return _BACKENDS["lean" if backend == "auto" else backend](h, kernel, drive, shift, activation)
