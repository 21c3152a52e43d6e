"""How well convolution on Z² ⋊ C_N turns with its input: exact at 90°, measured at 360°/N."""

import torch
from torch import Tensor

from fernn.flows import Rotation
from fernn.groups import SE2, GroupConv
from fernn.verify import sample_video

ORIENTATIONS = (4, 8, 12, 36)
KERNELS = (3, 5)


def steering(*, seed: int = 0) -> list[dict[str, float]]:
    """Relative errors of [g·f] ⋆ W = g·[f ⋆ W] in float64 on a smooth 33×33 image, by N and k.

    `lift` is the lifting convolution alone, `stack` is lift, ReLU, group convolution. The errors at
    one turn of C_N include those of the bilinear turn itself; `fixed` is the lift with kernels that
    do not turn, for comparison.
    """
    image = sample_video(Rotation(count=1), steps=1, seed=seed)[0]
    rows = []
    for orientations in ORIENTATIONS:
        for size in KERNELS:
            group = SE2(orientations)
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)  # not those of GPUs, too
                lift = GroupConv(group, 1, 4, size, lifting=True, padding="zeros").double()
                conv = GroupConv(group, 4, 4, size, padding="zeros").double()
            lifted, stacked, fixed = _errors(group, lift, conv, image, 360.0 / orientations)
            rows.append(
                {
                    "orientations": orientations,
                    "kernel": size,
                    "quarter": _errors(group, lift, conv, image, 90.0)[1],
                    "lift": lifted,
                    "stack": stacked,
                    "fixed": fixed,
                }
            )
    return rows


@torch.no_grad()
def _errors(
    group: SE2, lift: GroupConv, conv: GroupConv, image: Tensor, degrees: float
) -> tuple[float, float, float]:
    """Errors of the lift, of the stack, and of a lift whose kernels stay as they are."""
    turn = torch.tensor([[degrees, 0.0, 0.0]], dtype=torch.double)
    turned = group.act(image, turn)
    still = lift.kernel()[:: group.order].repeat_interleave(group.order, 0)
    half = lift.kernel_size // 2
    pairs = (
        (lift(turned), lift(image)),
        (conv(lift(turned).relu()), conv(lift(image).relu())),
        (torch.conv2d(turned, still, padding=half), torch.conv2d(image, still, padding=half)),
    )
    lifted, stacked, fixed = (
        float((got - want).norm() / want.norm())
        for got, want in ((a, group.act(b, turn, features=True)) for a, b in pairs)
    )
    return lifted, stacked, fixed
