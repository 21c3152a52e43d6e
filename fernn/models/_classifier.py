"""Classifying clips by the last state of a recurrence; and the 3D-CNN to compare with."""

from itertools import pairwise

from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow, Translation
from fernn.models import _fused_clips
from fernn.models._canvas import check_wraps
from fernn.nn import FlowPool, FlowRNN, LearnedTransport

TRANSPORTS = ("flow", "learned")


class Classifier(nn.Module):
    """logits = A·mean_x max_ν h_T(ν, x) on clips [B, T, C, H, W] → [B, classes].

    The encoder is three convolutions with batch-norm and ReLU (5×5, 3×3, 3×3); the recurrence uses
    tanh. `flow=None` is the G-RNN; `transport="learned"` replaces ψ_1 by learned 5×5 kernels, the
    G-RNN+. `norm` adds batch-norm and ReLU after the recurrent convolution.

    >>> import torch
    >>> Classifier(flow=Translation(radius=1), hidden_channels=8)(torch.zeros(2, 4, 1, 9, 9)).shape
    torch.Size([2, 6])
    """

    def __init__(
        self,
        *,
        flow: Flow | None = None,
        classes: int = 6,
        in_channels: int = 1,
        hidden_channels: int = 128,
        norm: bool = False,
        transport: str = "flow",
        frame: str = "lab",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        flow = Translation(radius=0) if flow is None else flow
        _check.kind("flow", flow, Flow, "Translation(radius=2)")
        if flow.group.dim != 2 or not isinstance(flow, Translation):
            raise ValueError(f"`flow` must be a Translation of images, got {flow!r}.")
        _check.choice("transport", transport, TRANSPORTS)
        _ = flow.zero  # a scene at rest must have its frame
        _check.count("classes", classes, least=1)
        _check.count("in_channels", in_channels, least=1)
        _check.count("hidden_channels", hidden_channels, least=4)
        self.config: dict[str, object] = {
            "flow": flow,
            "classes": classes,
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "norm": norm,
            "transport": transport,
            "frame": frame,
            "backend": backend,
        }
        self.rnn = FlowRNN(
            in_channels,
            hidden_channels,
            flow=flow,
            frame=frame,
            activation="tanh",
            norm=norm,
            encoder=_encoder(
                [in_channels, hidden_channels // 4, hidden_channels // 2, hidden_channels]
            ),
            transport=LearnedTransport(flow) if transport == "learned" else None,
            backend=backend,
        )
        self.pool = FlowPool("max")
        self.head = nn.Linear(hidden_channels, classes)

    @property
    def flow(self) -> Flow:
        return self.rnn.flow

    def forward(self, clip: Tensor) -> Tensor:
        self.rnn._check_input("clip", clip, sequence=True)
        check_wraps("clip", clip, self.rnn._layers()[0].input)
        if _fused_clips.fits(self, clip):
            return _fused_clips.classify(self, clip)
        h = self.pool(self.rnn.observe(clip).lab())
        logits: Tensor = self.head(h.mean((-2, -1)))
        return logits


class CNN3D(nn.Module):
    """Five 3×3×3 convolutions over time and space, a global mean and a linear map.

    Shapes: [B, T, C, H, W] → [B, classes].
    """

    def __init__(self, *, classes: int = 6, in_channels: int = 1) -> None:
        super().__init__()
        _check.count("classes", classes, least=1)
        _check.count("in_channels", in_channels, least=1)
        self.config: dict[str, object] = {"classes": classes, "in_channels": in_channels}
        widths = [in_channels, 16, 32, 32, 64, 64]
        strides = [(2, 1, 1), (1, 2, 2), (1, 1, 1), (1, 2, 2), (1, 1, 1)]
        layers: list[nn.Module] = []
        for (source, target), stride in zip(pairwise(widths), strides, strict=True):
            layers += [
                nn.Conv3d(source, target, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm3d(target),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)
        self.in_channels = in_channels

    def forward(self, clip: Tensor) -> Tensor:
        layout = "[B, T, C, H, W]"
        _check.signal("clip", clip, rank=5, layout=layout, channels=self.in_channels)
        _check.same_place("clip", clip, self.head.weight)
        features = self.layers(clip.transpose(1, 2))
        logits: Tensor = self.head(features.mean((-3, -2, -1)))
        return logits


def _encoder(widths: list[int]) -> nn.Sequential:
    """Circular convolutions, 5×5 then 3×3, each with batch-norm and ReLU: a frame-wise map."""
    layers: list[nn.Module] = []
    for index, (source, target) in enumerate(pairwise(widths)):
        size = 5 if index == 0 else 3
        conv = nn.Conv2d(
            source, target, size, padding=size // 2, padding_mode="circular", bias=False
        )
        layers += [conv, nn.BatchNorm2d(target), nn.ReLU()]
    return nn.Sequential(*layers)
