"""Which layers kernels may read instead of calling them: those as the models make them.

A hook, a pruned weight, a subclass or another layer in its place would be passed over in silence;
where there is one, the model calls its layers.
"""

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from torch import nn

from fernn.flows import Translation
from fernn.nn import FlowPool

if TYPE_CHECKING:
    from fernn.models._classifier import Classifier
    from fernn.models._forecaster import Forecaster

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def decodes_plainly(model: "Forecaster") -> bool:
    """Whether pool and decoder are as made: convolutions with ReLU between them.

    They are all of the model's size and, but for the last, of its width: the kernels share buffers
    between layers, and one halo.
    """
    padding = "circular" if isinstance(model.flow, Translation) else "zeros"
    ends = len(model.decoder) % 2 == 1  # in a convolution
    kinds = (nn.Conv2d, nn.ReLU)
    if not ends or not _made_of(model.decoder, kinds, padding, bias=True):
        return False
    convs = [layer for layer in model.decoder if isinstance(layer, nn.Conv2d)]
    width, size = convs[0].in_channels, (model.kernel_size,) * 2
    widths = [width] * (len(convs) - 1) + [model.rnn.in_channels]
    return pools_plainly(model.pool) and all(
        (conv.in_channels, conv.out_channels, conv.kernel_size) == (width, target, size)
        for conv, target in zip(convs, widths, strict=True)
    )


def encodes_plainly(model: "Classifier") -> bool:
    """Whether pool and encoder are as made: convolution, batch-norm, ReLU, and again."""
    encoder, kinds = model.rnn._layers()[0].input, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU)
    if not isinstance(encoder, nn.Sequential) or len(encoder) % len(kinds):
        return False
    return pools_plainly(model.pool) and _made_of(encoder, kinds, "circular", bias=False)


def _made_of(
    stack: nn.Sequential, kinds: Sequence[type[nn.Module]], padding: str, *, bias: bool
) -> bool:
    """Whether a stack repeats exactly these kinds, its convolutions keeping the canvas."""
    for layer, kind in zip(stack, cycle(kinds), strict=False):
        if type(layer) is not kind or not _unhooked(layer):
            return False
        if isinstance(layer, nn.Conv2d) and (
            layer.padding_mode != padding
            or layer.padding != tuple(size // 2 for size in layer.kernel_size)
            or (layer.stride, layer.dilation, layer.groups) != ((1, 1), (1, 1), 1)
            or (layer.bias is not None) != bias
        ):
            return False
    return _unhooked(stack)


def pools_plainly(pool: nn.Module) -> bool:
    """Whether a pool is as made: the maximum over velocities."""
    return type(pool) is FlowPool and pool.reduction == "max" and _unhooked(pool)


def _unhooked(module: nn.Module) -> bool:
    return not any(getattr(module, hooks) for hooks in _HOOKS)
