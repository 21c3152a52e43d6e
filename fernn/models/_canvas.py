"""Circular convolutions of torch wrap around a canvas once at most; a smaller one is refused."""

from torch import Tensor, nn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def check_wraps(name: str, x: Tensor, convs: nn.Module) -> None:
    """Raise where the canvas of `x` is smaller than the halo of a circular convolution."""
    for conv in convs.modules():
        if not isinstance(conv, _CONVOLUTIONS) or conv.padding_mode != "circular":
            continue
        canvas, halo = tuple(x.shape[-len(conv.kernel_size) :]), conv.padding
        if not isinstance(halo, str) and max(halo) > min(canvas):
            raise ValueError(
                f"`{name}` must have at least {max(halo)} pixels a side for a convolution of "
                f"kernel_size={max(conv.kernel_size)}, which wraps around once, got {canvas}."
            )
