"""Convolution on a group: an ordinary convolution with a kernel that the group expands."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import _check
from fernn.groups._base import Group

PADDINGS = ("circular", "zeros")
_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


def convolve(
    x: Tensor, kernel: Tensor, padding: str, bias: Tensor | None = None, *, groups: int = 1
) -> Tensor:
    """[x ⋆ W](g) = Σ_y x(y) W(y − g) on a canvas of unchanged size: [N, C, *X] → [N, K, *X]."""
    _check.choice("padding", padding, PADDINGS)
    halo = kernel.shape[-1] // 2
    conv = _CONV[x.ndim - 2]
    if padding == "zeros" or halo == 0:
        return conv(x, kernel, bias, padding=halo, groups=groups)
    return conv(_wrap(x, halo), kernel, bias, groups=groups)


def _wrap(x: Tensor, halo: int) -> Tensor:
    """x with a circular halo on every spatial axis."""
    if halo <= min(x.shape[2:]):
        return F.pad(x, (halo,) * (2 * (x.ndim - 2)), mode="circular")
    for axis, size in enumerate(x.shape[2:], start=2):  # more than once around a small torus
        x = x.index_select(axis, torch.arange(-halo, size + halo, device=x.device) % size)
    return x


class GroupConv(nn.Module):
    """[f ⋆ W](g) = Σ_h Σ_k f_k(h) W_k(g⁻¹h), or with `lifting` the same from the grid to the group.

    Shapes: [N, C·order, *X] → [N, K·order, *X]; with `lifting` the input has C channels.

    >>> from fernn.groups import SE2
    >>> GroupConv(SE2(8), 1, 4, 3, lifting=True)(torch.zeros(2, 1, 9, 9)).shape
    torch.Size([2, 32, 9, 9])
    """

    def __init__(
        self,
        group: Group,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        lifting: bool = False,
        padding: str = "circular",
    ) -> None:
        super().__init__()
        _check.count("in_channels", in_channels, least=1)
        _check.count("out_channels", out_channels, least=1)
        _check.choice("padding", padding, PADDINGS)
        self.group, self.lifting, self.padding = group, lifting, padding
        self.kernel_size = _check.odd("kernel_size", kernel_size)
        self.in_channels = in_channels * (1 if lifting else group.order)
        self.out_channels = out_channels * group.order
        shape = group.weight_shape(out_channels, in_channels, kernel_size, lifting=lifting)
        self.weight = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/√fan-in, as torch's convolutions; the basis of a group has unit norm."""
        bound = self.weight[0].numel() ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def kernel(self) -> Tensor:
        """The dense kernel, expanded once; use it for every step of a sequence."""
        return self.group.kernel(self.weight, self.kernel_size, lifting=self.lifting)

    def forward(self, x: Tensor) -> Tensor:
        layout = _check.layout("N, C", self.group.dim)
        _check.signal("x", x, rank=2 + self.group.dim, layout=layout, channels=self.in_channels)
        _check.same_place("x", x, self.weight)
        return convolve(x, self.kernel(), self.padding)

    def extra_repr(self) -> str:
        lifting = ", lifting=True" if self.lifting else ""
        return (
            f"{self.group}, {self.in_channels}, {self.out_channels}, {self.kernel_size}{lifting}, "
            f"padding={self.padding!r}"
        )
