"""Every model on every flow, before and after training, in three precisions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fernn.flows import Flow, Rotation, Translation
from fernn.groups import SE2
from fernn.models import Classifier, Forecaster
from fernn.nn import (
    CausalAttention,
    CausalConv,
    ConvGRU,
    FlowEquivariant,
    FlowRNN,
    LearnedTransport,
)
from fernn.verify import Report, sample_video, verify

STEPS = 7
TRAINING_STEPS = 5


@dataclass(frozen=True)
class Case:
    """A model, the flow it is tried on, and the verdict that the theory gives it."""

    flow_name: str
    model_name: str
    flow: Flow
    make: Callable[[], nn.Module]
    verdict: str
    horizon: int | None = None


@dataclass(frozen=True)
class Result:
    """What a case measured: reports in float64 before and after training, and low precisions."""

    case: Case
    float64: Report
    trained: Report
    float32: Report
    bfloat16: Report

    @property
    def as_expected(self) -> bool:
        """Whether the verdicts are the theory's, before and after training, and in float32."""
        verdicts = {self.float64.verdict, self.trained.verdict, self.float32.verdict}
        return verdicts == {self.case.verdict}

    def numbers(self) -> dict[str, float]:
        """The columns of the table."""
        return {
            "float64": self.float64.worst,
            "trained": self.trained.worst,
            "float32": self.float32.worst,
            "bfloat16": self.bfloat16.worst,
            "all of V": float(self.float64.everywhere.max()),
            "interpolation": float(self.float64.interpolation.max()),
        }


def cases() -> list[Case]:
    """All models on all flows. Models that should fail are among them: a verifier must see it."""
    line = Translation(radius=2, dim=1)
    plane = Translation(radius=1)
    wide = Translation(radius=2)
    space = Translation(radius=1, dim=3)
    sparse = Translation(velocities=[(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)])
    closed = Translation(closed=(5, 5))
    quarter = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    turn = Rotation(count=2)
    turn36 = Rotation(count=2, group=SE2(36))  # two channels: there are 36 orientations of each
    rest = Translation(radius=0)

    def fernn(
        flow: Flow,
        *,
        channels: int | tuple[int, ...] = 4,
        frame: str = "lab",
        mixing: int | str | None = None,
    ) -> Callable[[], nn.Module]:
        return lambda: FlowRNN(1, channels, flow=flow, frame=frame, mixing=mixing)

    def wrapped(make: Callable[[], nn.Module], flow: Flow) -> Callable[[], nn.Module]:
        return lambda: FlowEquivariant(make(), flow=flow)

    def forecaster(readout: str) -> Callable[[], nn.Module]:
        return lambda: Forecaster(flow=closed, hidden_channels=4, readout=readout)

    def learned() -> nn.Module:
        return FlowRNN(1, 4, flow=plane, transport=LearnedTransport(plane))

    def classifier() -> nn.Module:
        return Classifier(flow=closed, hidden_channels=16)

    def resting() -> nn.Module:
        return Classifier(hidden_channels=16)

    def gru() -> nn.Module:
        return ConvGRU(1, 4)

    def conv() -> nn.Module:
        return CausalConv(1, 4)

    def attention() -> nn.Module:
        return CausalAttention(1, 4)

    return [
        Case("Z, |ν| ≤ 2", "FERNN", line, fernn(line), "exact"),
        Case("V^T_1", "FERNN", plane, fernn(plane), "exact"),
        Case("V^T_1", "FERNN, co-moving", plane, fernn(plane, frame="comoving"), "exact"),
        Case("V^T_1", "FERNN, two layers", plane, fernn(plane, channels=(4, 4)), "exact"),
        Case("V^T_1", "FERNN, V-mixing", plane, fernn(plane, mixing=1), "broken"),
        Case("V^T_1", "ConvGRU, wrapped", plane, wrapped(gru, plane), "exact"),
        Case("V^T_1", "temporal conv, wrapped", plane, wrapped(conv, plane), "exact"),
        Case("V^T_1", "attention, wrapped", plane, wrapped(attention, plane), "exact"),
        Case("V^T_1", "G-RNN", plane, fernn(rest), "broken"),
        Case("V^T_1", "G-RNN+", plane, learned, "broken"),
        Case("V^T_1", "ConvGRU", plane, gru, "broken"),
        Case("V^T_1", "attention", plane, attention, "broken"),
        Case("V^T_2", "FERNN", wide, fernn(wide), "exact"),
        Case("x ∈ {0, ±1, ±3, ±5}", "FERNN", sparse, fernn(sparse), "exact"),
        Case("Z³, |ν| ≤ 1", "FERNN", space, fernn(space), "exact"),
        Case("closed 5×5", "FERNN", closed, fernn(closed), "exact"),
        Case("closed 5×5", "FERNN, V-mixing", closed, fernn(closed, mixing="full"), "exact"),
        Case(
            "closed 5×5", "Forecaster, transported", closed, forecaster("transported"), "exact", 4
        ),
        Case("closed 5×5", "Forecaster, published", closed, forecaster("published"), "broken", 4),
        Case("closed 5×5", "Classifier", closed, classifier, "exact"),
        Case("closed 5×5", "Classifier, G-RNN", closed, resting, "broken"),
        Case("quarter turns", "FERNN on C_4", quarter, fernn(quarter), "exact"),
        Case(
            "quarter turns",
            "FERNN on C_4, co-moving",
            quarter,
            fernn(quarter, frame="comoving"),
            "exact",
        ),
        Case("V^R_2, 10°", "FERNN on C_36", turn36, fernn(turn36, channels=2), "interpolated"),
        Case("V^R_2, 10°", "FERNN, co-moving", turn, fernn(turn, frame="comoving"), "interpolated"),
        Case("V^R_2, 10°", "ConvGRU, wrapped", turn, wrapped(gru, turn), "interpolated"),
        Case("V^R_2, 10°", "G-RNN", turn, fernn(Rotation(count=0), frame="comoving"), "broken"),
        Case("V^R_2, 10°", "ConvGRU", turn, gru, "broken"),
    ]


def run(chosen: list[Case] | None = None, *, seed: int = 0) -> Iterator[Result]:
    """Measure the cases one by one. Each model is made from `seed` alone."""
    for case in cases() if chosen is None else chosen:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # not those of GPUs, too
            model = case.make()
        video = sample_video(case.flow, steps=STEPS, seed=seed)
        forward = FixedHorizon(model, case.horizon) if case.horizon else model
        report = partial(verify, forward, video, case.flow)
        before, *low = (report(dtype=d) for d in (torch.float64, torch.float32, torch.bfloat16))
        _train(model, video.float())
        yield Result(case, before, report(dtype=torch.float64), *low)


class FixedHorizon(nn.Module):
    """A forecaster with its horizon fixed."""

    forecasts = True

    def __init__(self, model: nn.Module, horizon: int) -> None:
        super().__init__()
        self.model, self.horizon = model, horizon

    def forward(self, video: Tensor) -> Tensor:
        out: Tensor = self.model(video, self.horizon)
        return out


def _train(model: nn.Module, video: Tensor) -> None:
    """A few steps of Adam towards outputs of one, enough to leave the initialisation."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(TRAINING_STEPS):
        out = model(video)
        loss = ((out[0] if isinstance(out, tuple) else out) - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
