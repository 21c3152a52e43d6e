"""One layer of a flow-equivariant recurrence: its input map U and its recurrent map W."""

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow, Translation
from fernn.groups import GroupConv, convolve
from fernn.nn._conv import FlowConv
from fernn.nn._transport import LearnedTransport
from fernn.ops._backend import low_dtype

Kernels = tuple[Tensor | None, Tensor]
"""The dense kernels of U (None for an encoder) and W, expanded once for a whole sequence."""


class Layer(nn.Module):
    """U and W of h_{t+1} = σ(ψ_1·[W ⋆ h_t] + U ⋆ x_t); U lifts in the first layer of a stack."""

    input: nn.Module
    recurrent: GroupConv | FlowConv

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        *,
        flow: Flow,
        kernel_size: int,
        padding: str,
        mixing: int | str | None,
        norm: bool,
        encoder: nn.Module | None,
        first: bool,
    ) -> None:
        super().__init__()
        _check.count("hidden_channels", hidden_channels, least=1)
        self.channels = hidden_channels * flow.group.order
        self.hidden_channels = hidden_channels

        def conv(source: int, *, lifting: bool = False) -> GroupConv | FlowConv:
            if mixing is None or lifting:
                return GroupConv(
                    flow.group,
                    source,
                    hidden_channels,
                    kernel_size,
                    lifting=lifting,
                    padding=padding,
                )
            return FlowConv(
                source,
                hidden_channels,
                flow=flow,
                radius=_mixing_radius(mixing),
                kernel_size=kernel_size,
                padding=padding,
            )

        self.input = encoder if encoder is not None else conv(in_channels, lifting=first)
        self.recurrent = conv(hidden_channels)
        self.norm = nn.BatchNorm2d(hidden_channels) if norm else None

    def obstacle(self, flow: Flow, transport: nn.Module | None) -> str | None:
        """Why no kernel takes a step of this layer, whatever it runs on; None where one may.

        Mixing over all differences stays the one convolution that it already is.
        """
        conv = self.recurrent
        if not isinstance(flow, Translation):
            return f"a step by itself has kernels for a Translation, got {flow!r}."
        if conv.padding != "circular":
            return f'a step has kernels for padding="circular", got {conv.padding!r}.'
        mixes = isinstance(conv, FlowConv)
        if self.norm is not None and (mixes or flow.group.dim != 2):
            what = "with mixing" if mixes else f"on signals of {flow.group.dim} axes"
            return f"a step with batch-norm has kernels for images without `mixing`, got it {what}."
        if transport is not None and (mixes or type(transport) is not LearnedTransport):
            return (
                "a step has kernels for a LearnedTransport without `mixing`, "
                f"got {type(transport).__name__}{' with mixing' if mixes else ''}."
            )
        if isinstance(conv, FlowConv) and conv._dense:
            return (
                "a step has kernels for `mixing` over fewer differences than V has velocities, "
                f"got {conv.weight.shape[2]} and {len(flow)}."
            )
        return None

    def kernels(self) -> Kernels:
        inner = self.input.kernel() if isinstance(self.input, GroupConv | FlowConv) else None
        return inner, self.recurrent.kernel()

    def drive(self, x: Tensor, kernel: Tensor | None) -> Tensor:
        """U ⋆ x for frames or slices side by side: [B, n, C, *X] → [B, n, K, *X]."""
        if isinstance(self.input, GroupConv | FlowConv):
            assert kernel is not None
            return _apply(self.input, x, kernel)
        out: Tensor = self.input(x.flatten(0, 1))
        if out.shape[1] != self.channels or out.shape[2:] != x.shape[3:]:
            raise ValueError(
                f"`encoder` must map [N, C, *X] to [N, {self.channels}, *X] on an unchanged "
                f"canvas, got {tuple(out.shape)} from {(x.shape[0] * x.shape[1], *x.shape[2:])}."
            )
        return out.reshape(*x.shape[:2], *out.shape[1:])

    def recur(self, h: Tensor, kernel: Tensor) -> Tensor:
        """W ⋆ h, normalised and rectified where the layer has a norm: [B, V, K, *X]."""
        out = _apply(self.recurrent, h, kernel)
        if self.norm is None:
            return out
        # Orientations share their statistics, as they share their weights.
        flat = out.reshape(out.shape[0] * out.shape[1], self.hidden_channels, -1, 1)
        return torch.relu(self.norm(flat)).reshape(out.shape)

    def recur_on_gpu(self, h: Tensor, kernel: Tensor) -> Tensor:
        """The same of images on a torus, with a norm, without a pad and channels-last."""
        from fernn.ops.torus_conv import torus_conv  # Triton is imported by those who use it alone

        assert self.norm is not None
        images = h.to(low_dtype(h)).permute(0, 1, 3, 4, 2).flatten(0, 1)
        normed: Tensor = self.norm(torus_conv(images, kernel).permute(0, 3, 1, 2))
        lifted: Tensor = torch.relu(normed).unflatten(0, h.shape[:2])
        return lifted


def _apply(conv: GroupConv | FlowConv, x: Tensor, kernel: Tensor) -> Tensor:
    """A convolution of [B, n, C, *X] with an expanded kernel: slice by slice, or across slices."""
    if isinstance(conv, FlowConv):
        return conv.convolve(x, kernel)
    out = convolve(x.flatten(0, 1), kernel, conv.padding)
    return out.reshape(*x.shape[:2], *out.shape[1:])


def _mixing_radius(mixing: int | str) -> int | None:
    if mixing == "full":
        return None
    if isinstance(mixing, str):
        raise ValueError(f'`mixing` must be "full", a radius or None, got {mixing!r}.')
    return _check.count("mixing", mixing, least=0)
