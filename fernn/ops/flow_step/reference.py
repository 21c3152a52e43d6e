"""The equation, in plain torch: what every other backend must equal, gradients included."""

from collections.abc import Callable

import torch
from torch import Tensor

from fernn.groups import Lattice, convolve

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}


def flow_step(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor, activation: str) -> Tensor:
    """h_{t+1}(ν) = σ(ψ_1(ν)·[h_t ⋆ W](ν) + drive_t(ν))."""
    recurrent = convolve(h.flatten(0, 1), kernel, "circular").reshape(
        *h.shape[:2], -1, *h.shape[3:]
    )
    moved = Lattice(shift.shape[-1]).act(recurrent, shift[None])
    return ACTIVATIONS[activation](moved + drive)
