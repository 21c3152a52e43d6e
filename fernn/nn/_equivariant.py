"""Any causal sequence model, made flow equivariant by running it in every moving frame."""

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow
from fernn.nn._causal import CausalConv, Cell
from fernn.nn._state import State


class FlowEquivariant(nn.Module):
    """M̃[f](ν)_t = ψ_t(ν)·M[ψ_{−·}(ν)·f]_t: M runs on a counter-flowed copy of its input for each ν.

    The module must map [B, T, C, *X] to [B, T, K, *X], its output t of the time of frame t; of a
    tuple the first part counts. Where it is causal so is the wrapper, and a `Cell` also streams,
    one frame at a time. With batch-norm, whose statistics in training are of all frames together,
    the theorem is about eval mode.

    Shapes: video [B, T, C, *X] → [B, T, V, K, *X], lab coordinates.

    >>> from fernn import ConvGRU, Translation
    >>> FlowEquivariant(ConvGRU(1, 4), flow=Translation(radius=1))(torch.zeros(2, 3, 1, 8, 8)).shape
    torch.Size([2, 3, 9, 4, 8, 8])
    """

    features = False  # the module knows nothing of orientations

    def __init__(self, module: nn.Module, flow: Flow) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"`module` must be a torch.nn.Module, got {type(module).__name__}.")
        if getattr(module, "forecasts", False) is True:
            raise ValueError(
                "`module` must answer for the time of each frame that it sees, got a "
                f"{type(module).__name__}, whose outputs come after the last. Wrap what is inside "
                "it, or use fernn.models.SequenceForecaster."
            )
        _check.kind("flow", flow, Flow, "Translation(radius=2)")
        # Other modules often call their width `dim`.
        if isinstance(module, Cell | CausalConv) and module.dim != flow.group.dim:
            raise ValueError(
                f"`flow` must have the dimension of its {type(module).__name__}, {module.dim}, "
                f"got {flow!r} of dimension {flow.group.dim}."
            )
        self.module, self.flow = module, flow

    def forward(self, video: Tensor) -> Tensor:
        self._check_input("video", video, "[B, T, C, *X]")
        batch, steps = video.shape[:2]
        time = torch.arange(steps, device=video.device)
        copies = self.flow.transport(video[:, :, None], -time, features=False)
        out = self.module(copies.transpose(1, 2).flatten(0, 1))
        out = out[0] if isinstance(out, tuple) else out
        canvas = video.shape[3:]
        many = (batch * len(self.flow), steps)
        if not isinstance(out, Tensor) or out.shape[:2] != many or out.shape[3:] != canvas:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(
                "`module` must map [B, T, C, *X] to [B, T, K, *X], "
                f"got {got} for {(batch * len(self.flow), *video.shape[1:])}."
            )
        lifted = out.reshape(batch, len(self.flow), *out.shape[1:]).transpose(1, 2)
        return self.flow.transport(lifted, time, features=False)

    def step(self, frame: Tensor, state: State | None = None) -> State:
        """One frame [B, C, *X] of a cell; without a state it begins."""
        if not isinstance(self.module, Cell):
            raise TypeError(
                "`step` needs a Cell, which has `init_state` and `step`; "
                f"{type(self.module).__name__} sees whole sequences only. Call the wrapper instead."
            )
        self._check_input("frame", frame, "[B, C, *X]")
        if state is not None:
            _check.kind("state", state, State, "what `step` returned before")
        if state is not None and state.flow != self.flow:
            raise ValueError(f"`state` must come from {self.flow!r}, got one of {state.flow!r}.")
        if state is not None and (state.frame != "comoving" or state.features):
            raise ValueError(
                f"`state` must come from a FlowEquivariant, whose frame is comoving, got {state!r}."
            )
        if state is not None:
            h, x = state.tensors[-1].shape, frame.shape
            if (h[0], *h[3:]) != (x[0], *x[2:]):
                raise ValueError(
                    f"`state` must have the batch and canvas of the frame, {tuple(x)}, "
                    f"got one that ends in {tuple(h)}."
                )
        if state is None:
            time = torch.zeros((), dtype=torch.long, device=frame.device)
            many = frame[:, None].expand(-1, len(self.flow), *frame.shape[1:])
            tensors = self.module.begin(many.flatten(0, 1))
        else:
            time, tensors = state.time, tuple(t.flatten(0, 1) for t in state.tensors)
        copies = self.flow.transport(frame[:, None], -time, features=False).flatten(0, 1)
        tensors = self.module.checked(self.module.step(copies, tensors), copies)
        lifted = tuple(t.reshape(frame.shape[0], len(self.flow), *t.shape[1:]) for t in tensors)
        return State(lifted, time + 1, "comoving", self.flow, features=False)

    def _check_input(self, name: str, x: Tensor, layout: str) -> None:
        rank = layout.count(",") + self.flow.group.dim
        module = self.module
        channels = module.in_channels if isinstance(module, Cell | CausalConv) else None
        _check.signal(name, x, rank=rank, layout=layout, channels=channels)
        self._check_place(name, x)

    def _check_place(self, name: str, x: Tensor) -> None:
        parameter = next(self.module.parameters(), None)
        if parameter is not None:
            _check.same_place(name, x, parameter)
