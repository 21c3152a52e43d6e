"""Ordinary causal sequence models, which `FlowEquivariant` makes flow equivariant."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.groups import GroupConv, Lattice, convolve
from fernn.ops import gru_step as gru
from fernn.ops import pixel_attention as attention

States = tuple[Tensor, ...]


class Cell(nn.Module, ABC):
    """A recurrence that streams: a state, which is a tuple of tensors, and a step.

    The last tensor of the state is the output. Shapes: frame [B, C, *X] with `dim` axes X, every
    state tensor [B, …], the last [B, K, *X]; video [B, T, C, *X] → [B, T, K, *X]. Where
    `in_channels` is set, C must be that.
    """

    dim: int = 2
    in_channels: int | None = None

    @abstractmethod
    def init_state(self, frame: Tensor) -> States:
        """The state before the first frame, for a batch and canvas like `frame`."""

    @abstractmethod
    def step(self, frame: Tensor, state: States) -> States:
        """The state after one more frame."""

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.dim, self.in_channels)
        outputs = []
        state = self.begin(video[:, 0])
        for frame in video.unbind(1):
            state = self.checked(self.step(frame, state), frame)
            outputs.append(state[-1])
        return torch.stack(outputs, 1)

    def begin(self, frame: Tensor) -> States:
        """`init_state(frame)`, checked to be a tuple of tensors."""
        state = self.init_state(frame)
        parts = state if isinstance(state, tuple) else (state,)
        if parts is not state or not all(isinstance(part, Tensor) for part in parts):
            raise TypeError(
                f"`init_state` of {type(self).__name__} must return a tuple of tensors, got "
                f"{'a tuple of ' if parts is state else ''}"
                f"{', '.join(type(part).__name__ for part in parts)}. "
                "One tensor alone is written (tensor,)."
            )
        return state

    def checked(self, state: States, frame: Tensor) -> States:
        """`state` as `step` returned it for `frame`, checked."""
        batch, parts = frame.shape[0], state if isinstance(state, tuple) else (state,)
        held = [isinstance(part, Tensor) and part.shape[:1] == (batch,) for part in parts]
        if parts is not state or not parts or not all(held) or parts[-1].ndim != 2 + self.dim:
            found = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in parts]
            raise TypeError(
                f"the state of {type(self).__name__} must be a tuple of tensors that begin with "
                f"the batch of the frame, {batch}, the last {_check.layout('B, K', self.dim)}, got "
                f"{'a tuple of ' if parts is state else 'one alone, '}{', '.join(map(str, found))}."
            )
        return state


class ConvGRU(Cell):
    """h ← (1 − z)∘h + z∘tanh(U f + W(r∘h)), gates r and z by convolution of f and h.

    On a CUDA device kernels take frames that need no gradient, and have first gradients alone.

    >>> ConvGRU(1, 4)(torch.zeros(2, 3, 1, 8, 8)).shape
    torch.Size([2, 3, 4, 8, 8])
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, *, kernel_size: int = 3, dim: int = 2
    ) -> None:
        super().__init__()
        self.in_channels = _check.count("in_channels", in_channels, least=1)
        self.hidden_channels = _check.count("hidden_channels", hidden_channels, least=1)
        both, group, self.dim = in_channels + hidden_channels, Lattice(dim), dim
        self.gates = GroupConv(group, both, 2 * hidden_channels, kernel_size)
        self.candidate = GroupConv(group, both, hidden_channels, kernel_size)

    def init_state(self, frame: Tensor) -> States:
        return (frame.new_zeros(frame.shape[0], self.hidden_channels, *frame.shape[2:]),)

    def step(self, frame: Tensor, state: States) -> States:
        (h,) = state
        _check_frame(frame, state, self.in_channels, self.dim)
        if gru.obstacle(frame, self.candidate.kernel()) is None:
            return (gru.gru_step(frame, h, self.gates.kernel(), self.candidate.kernel()),)
        return self._plain(frame, h)

    def _plain(self, frame: Tensor, h: Tensor) -> States:
        reset, update = _beside(self.gates, frame, h).sigmoid().chunk(2, 1)
        candidate = _beside(self.candidate, frame, reset * h).tanh()
        return (h + update * (candidate - h),)


def _beside(conv: GroupConv, frame: Tensor, h: Tensor) -> Tensor:
    """The convolution of both, their channels side by side, as a sum of two: nothing is copied, and
    the channels of h stay a number that matrix units take."""
    kernel, channels = conv.kernel(), frame.shape[1]
    driven = convolve(frame, kernel[:, :channels], conv.padding)
    return driven + convolve(h, kernel[:, channels:], conv.padding)


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
        self.in_channels = _check.count("in_channels", in_channels, least=1)
        self.length, self.dim = _check.count("length", length, least=1), dim
        self.conv = GroupConv(Lattice(dim), in_channels * length, out_channels, kernel_size)

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.dim, self.in_channels)
        steps = video.shape[1]
        past = torch.cat([torch.zeros_like(video[:, :1])] * (self.length - 1) + [video], 1)
        window = torch.cat([past[:, s : s + steps] for s in range(self.length)], 2)
        out: Tensor = self.conv(window.flatten(0, 1))
        return out.reshape(*video.shape[:2], *out.shape[1:])


class CausalAttention(Cell):
    """g_t(x) = Σ_{s≤t} softmax_s(q_t(x)·k_s(x)) v_s(x): each pixel attends to its own past.

    Queries, keys and values are convolutions of the frames. With `recency` head n adds
    −2^{1−n}·(t−s) to its scores; without it a frame's place in time is not known.
    Shapes: [B, T, C, *X] → [B, T, K, *X]. A stream remembers all frames, and the keys and
    values of those where they were formed, so its state grows with every frame. On a CUDA device a
    stream runs in kernels where frames need no gradient; these have first gradients alone.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        recency: bool = False,
        kernel_size: int = 3,
        dim: int = 2,
    ) -> None:
        super().__init__()
        self.in_channels = _check.count("in_channels", in_channels, least=1)
        _check.count("out_channels", out_channels, least=1)
        self.heads = _check.count("heads", heads, least=1)
        if out_channels % heads:
            raise ValueError(
                f"`out_channels` must be a multiple of `heads`, got {out_channels} and {heads}."
            )
        self.recency, self.dim = recency, dim
        self.qkv = GroupConv(Lattice(dim), in_channels, 3 * out_channels, kernel_size)

    def init_state(self, frame: Tensor) -> States:
        batch, canvas = frame.shape[0], frame.shape[2:]
        out = frame.new_zeros(batch, self.qkv.weight.shape[0] // 3, *canvas)
        none = out.new_zeros(batch, 0, *out.shape[1:])
        return frame.new_zeros(batch, 0, *frame.shape[1:]), none, none, out

    def step(self, frame: Tensor, state: States) -> States:
        frames, keys, values, _ = state
        _check_frame(frame, state, self.in_channels, self.dim)
        frames, kernel = torch.cat([frames, frame[:, None]], 1), self.qkv.kernel()
        if attention.obstacle(frames, kernel, self.heads) is None:
            seen = attention.pixel_attention(frames, kernel, self.heads, self.recency)
            return frames, keys, values, seen
        missing = frames[:, keys.shape[1] :]
        qkv = convolve(missing.flatten(0, 1), kernel, self.qkv.padding)
        query, key, value = qkv.unflatten(0, missing.shape[:2]).chunk(3, 2)
        keys = torch.cat([keys.to(key.dtype), key], 1)
        values = torch.cat([values.to(value.dtype), value], 1)
        parts = (self._headed(t) for t in (query[:, -1:], keys, values))
        return frames, keys, values, self._attend(*parts)[:, 0].flatten(1, 2)

    def forward(self, video: Tensor) -> Tensor:
        _check_video(video, self.dim, self.in_channels)
        qkv = self.qkv(video.flatten(0, 1)).unflatten(0, video.shape[:2])
        return self._attend(*(self._headed(t) for t in qkv.chunk(3, 2))).flatten(2, 3)

    def _headed(self, x: Tensor) -> Tensor:
        """[B, T, K, *X] → [B, T, heads, K/heads, *X]."""
        headed: Tensor = x.unflatten(2, (self.heads, -1))
        return headed

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What the last frames, [B, Q, heads, K, *X], see of all, [B, T, heads, K, *X].

        Written out: fused attention stops at 65535 sequences, and here every pixel is one.
        """
        spread = 1 / math.sqrt(query.shape[3])
        seen, first = [], key.shape[1] - query.shape[1]
        for now, q in enumerate(query.unbind(1), start=first):
            k, v = key[:, : now + 1], value[:, : now + 1]
            scores = (q[:, None] * k).sum(3) * spread  # [B, T, heads, *X]
            if self.recency:
                scores = scores + self._recency(now, scores)
            seen.append((scores.softmax(1).unsqueeze(3) * v).sum(1))
        return torch.stack(seen, 1)

    def _recency(self, now: int, scores: Tensor) -> Tensor:
        """What time `now` adds to the scores of the frames up to it, [T, heads, 1, …]."""
        ago = torch.arange(now, -1, -1, device=scores.device)
        slopes = 2.0 ** (1 - torch.arange(self.heads, device=scores.device))
        table = (ago[:, None] * -slopes).to(scores.dtype)
        return table.reshape(now + 1, self.heads, *[1] * self.dim)


def _check_video(video: Tensor, dim: int, channels: int | None) -> None:
    layout = _check.layout("B, T, C", dim)
    _check.signal("video", video, rank=3 + dim, layout=layout, channels=channels)


def _check_frame(frame: Tensor, state: States, channels: int | None, dim: int) -> None:
    """Raise unless a frame fits cell and state: a kernel would read past what it is given."""
    _check.signal(
        "frame", frame, rank=2 + dim, layout=_check.layout("B, C", dim), channels=channels
    )
    wanted, held = ((x.shape[0], *x.shape[2:]) for x in (frame, state[-1]))
    if held != wanted:
        raise ValueError(
            f"`state` must have the batch and canvas of the frame, {tuple(frame.shape)}, "
            f"got one that ends in {tuple(state[-1].shape)}."
        )
