"""Forecasting with other causal models than the FERNN, alone or in every moving frame."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Translation
from fernn.models._forecaster import decoder
from fernn.models._plain import pools_plainly
from fernn.nn import CausalAttention, Cell, ConvGRU, FlowEquivariant, FlowPool, State
from fernn.ops import flow_pool
from fernn.ops._backend import obstacle

HEADS = 4
SEQUENCES: dict[str, Callable[[int, int], Cell]] = {
    "convgru": ConvGRU,
    "attention": partial(CausalAttention, heads=HEADS, recency=True),
}


class SequenceForecaster(nn.Module):
    """f̂_{t+1} = g(max_ν ψ_1(ν)·M̃[f]_t(ν)): video [B, T, C, H, W] and a horizon → the frames after.

    M̃ is `FlowEquivariant` around M: "convgru", "attention", which has four heads, or a `Cell` of
    your own with `hidden_channels` outputs. `flow=None` is M alone. The decoder, the feeding back
    and the stopped gradients are those of `Forecaster` with the transported readout, so that a
    difference between two of them is that of M or of V.

    >>> model = SequenceForecaster(sequence="attention", hidden_channels=8)
    >>> model(torch.zeros(2, 5, 1, 12, 12), horizon=3).shape
    torch.Size([2, 3, 1, 12, 12])
    """

    forecasts = True  # the first output follows the last frame

    def __init__(
        self,
        *,
        sequence: str | Cell = "convgru",
        flow: Translation | None = None,
        in_channels: int = 1,
        hidden_channels: int = 128,
        decoder_layers: int = 3,
    ) -> None:
        super().__init__()
        flow = Translation(radius=0) if flow is None else flow
        if isinstance(sequence, str):
            _check.choice("sequence", sequence, tuple(SEQUENCES))
        else:
            _check.kind("sequence", sequence, Cell, '"convgru", or a Cell of your own')
        if not isinstance(flow, Translation) or flow.group.dim != 2:
            raise ValueError(f"`flow` must be a Translation of images, got {flow!r}.")
        _ = flow.zero  # a scene at rest must have its frame
        _check.count("decoder_layers", decoder_layers, least=0)
        self.in_channels = _check.count("in_channels", in_channels, least=1)
        _check.count("hidden_channels", hidden_channels, least=1)
        if sequence == "attention" and hidden_channels % HEADS:
            raise ValueError(
                f'`hidden_channels` must be a multiple of {HEADS}, the heads of "attention", '
                f"got {hidden_channels}."
            )
        takes = sequence.in_channels if isinstance(sequence, Cell) else None
        if takes not in (None, in_channels):
            raise ValueError(
                f"`in_channels` must be what `sequence` takes, {takes}, got {in_channels}."
            )
        self.config: dict[str, object] = {
            "sequence": sequence,
            "flow": flow,
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "decoder_layers": decoder_layers,
        }
        if isinstance(sequence, str):
            sequence = SEQUENCES[sequence](in_channels, hidden_channels)
        self.sequence = FlowEquivariant(sequence, flow)
        self.pool = FlowPool("max")
        widths = [hidden_channels] * (decoder_layers + 1) + [in_channels]
        self.decoder = decoder(widths, kernel_size=3, dim=2, cyclic=True)

    @property
    def flow(self) -> Translation:
        flow = self.sequence.flow
        assert isinstance(flow, Translation)
        return flow

    def forward(self, video: Tensor, horizon: int = 10) -> Tensor:
        _check.count("horizon", horizon, least=1)
        layout = "[B, T, C, H, W]"
        _check.signal("video", video, rank=5, layout=layout, channels=self.in_channels)
        self.sequence._check_place("video", video)
        state = None
        for frame in video.unbind(1):
            state = self.sequence.step(frame, state)
        assert state is not None
        outputs, hidden = state.tensors[-1].shape[2], self.config["hidden_channels"]
        if outputs != hidden:
            raise ValueError(
                f"`hidden_channels` must be what `sequence` has, {outputs}, got {hidden}."
            )
        predictions = [self.decoder(self._seen(state))]
        for _ in range(horizon - 1):
            state = self.sequence.step(predictions[-1].detach().to(video.dtype), state)
            predictions.append(self.decoder(self._seen(state)))
        return torch.stack(predictions, 1)

    def _seen(self, state: State) -> Tensor:
        """max_ν ψ_1(ν)·M̃[f]_t(ν), in one pass over the state where a kernel can: [B, K, H, W]."""
        h = state.tensors[-1]
        shift = self.flow.exp(self.flow.table(h.device), state.time)
        if pools_plainly(self.pool) and obstacle(h, shift) is None:
            return flow_pool(h, shift)
        pooled: Tensor = self.pool(state.lab(ahead=1))
        return pooled
