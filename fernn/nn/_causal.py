"""Ordinary causal sequence models, which `FlowEquivariant` makes flow equivariant."""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import _check
from fernn.groups import GroupConv, Lattice

States = tuple[Tensor, ...]


class Cell(nn.Module, ABC):
    """A recurrence that streams: a state of plain tensors, the last of them the output, and a step.

    Shapes: frame [B, C, *X] with `dim` axes X, every state tensor [B, K, *X];
    video [B, T, C, *X] → [B, T, K, *X].
    """

    dim: int = 2

    @abstractmethod
    def init_state(self, frame: Tensor) -> States:
        """The state before the first frame, for a batch and canvas like `frame`."""

    @abstractmethod
    def step(self, frame: Tensor, state: States) -> States:
        """The state after one more frame."""

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.dim)
        outputs = []
        state = self.init_state(video[:, 0])
        for frame in video.unbind(1):
            state = self.step(frame, state)
            outputs.append(state[-1])
        return torch.stack(outputs, 1)


class ConvGRU(Cell):
    """h ← (1 − z)∘h + z∘tanh(U f + W(r∘h)), gates r and z by convolution of f and h.

    >>> ConvGRU(1, 4)(torch.zeros(2, 3, 1, 8, 8)).shape
    torch.Size([2, 3, 4, 8, 8])
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, *, kernel_size: int = 3, dim: int = 2
    ) -> None:
        super().__init__()
        both, group = in_channels + hidden_channels, Lattice(dim)
        self.hidden_channels, self.dim = hidden_channels, dim
        self.gates = GroupConv(group, both, 2 * hidden_channels, kernel_size)
        self.candidate = GroupConv(group, both, hidden_channels, kernel_size)

    def init_state(self, frame: Tensor) -> States:
        return (frame.new_zeros(frame.shape[0], self.hidden_channels, *frame.shape[2:]),)

    def step(self, frame: Tensor, state: States) -> States:
        (h,) = state
        reset, update = self.gates(torch.cat([frame, h], 1)).sigmoid().chunk(2, 1)
        candidate = self.candidate(torch.cat([frame, reset * h], 1)).tanh()
        return (h + update * (candidate - h),)


class CausalConv(nn.Module):
    """g_t = Σ_{s<length} W_s ⋆ f_{t−s}: a convolution over the last frames and over space.

    Shapes: [B, T, C, *X] → [B, T, K, *X].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        length: int = 3,
        kernel_size: int = 3,
        dim: int = 2,
    ) -> None:
        super().__init__()
        self.length = _check.count("length", length, least=1)
        self.conv = GroupConv(Lattice(dim), in_channels * length, out_channels, kernel_size)

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.conv.group.dim)
        steps = video.shape[1]
        past = torch.cat([torch.zeros_like(video[:, :1])] * (self.length - 1) + [video], 1)
        window = torch.cat([past[:, s : s + steps] for s in range(self.length)], 2)
        out: Tensor = self.conv(window.flatten(0, 1))
        return out.reshape(*video.shape[:2], *out.shape[1:])


class CausalAttention(nn.Module):
    """g_t(x) = Σ_{s≤t} softmax_s(q_t(x)·k_s(x)) v_s(x): each pixel attends to its own past.

    Queries, keys and values are convolutions of the frames. Shapes: [B, T, C, *X] → [B, T, K, *X].
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        kernel_size: int = 3,
        dim: int = 2,
    ) -> None:
        super().__init__()
        self.heads = _check.count("heads", heads, least=1)
        if out_channels % heads:
            raise ValueError(
                f"`out_channels` must be a multiple of `heads`, got {out_channels} and {heads}."
            )
        self.qkv = GroupConv(Lattice(dim), in_channels, 3 * out_channels, kernel_size)

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.qkv.group.dim)
        batch, steps, _, *canvas = video.shape
        qkv = self.qkv(video.flatten(0, 1)).reshape(batch, steps, 3, self.heads, -1, *canvas)
        # [3, B, *X, heads, T, K/heads]: pixels are a batch, time is the sequence.
        query, key, value = qkv.movedim((2, 1, 4), (0, -2, -1)).movedim(2, -3)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return out.movedim(-3, 1).movedim((-2, -1), (1, 3)).flatten(2, 3)


def _check_video(video: Tensor, dim: int) -> None:
    layout = "[B, T, C, " + ", ".join("DHW"[-dim:]) + "]"
    _check.signal("video", video, rank=3 + dim, layout=layout)
