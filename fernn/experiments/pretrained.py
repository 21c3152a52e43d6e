"""The pretrained weights at work: whether training left them flow equivariant."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from fernn.experiments.recipes import Recipe, from_json
from fernn.experiments.verification import STEPS
from fernn.flows import Flow, Rotation, Translation
from fernn.models import (
    Classifier,
    Forecaster,
    SequenceForecaster,
    load_pretrained,
    pretrained,
    pretrained_record,
)
from fernn.verify import Report, sample_video, sharp_video, verify

Model = TypeVar("Model", bound=Forecaster | SequenceForecaster | Classifier)


@dataclass(frozen=True)
class Verified:
    """The reports of one model: its lifted states, and its forecast on a closed V."""

    name: str
    sha256: str
    moves: bool
    states: Report
    float32: Report
    forecast: Report

    @property
    def as_expected(self) -> bool:
        """Whether the verdicts are the theory's.

        A FERNN's states move along, a G-RNN's do not. So do the forecasts of a FERNN that
        translates; one that turns reads out with ordinary convolutions, which do not turn.
        """
        moves, turns = self.moves, isinstance(self.states.flow, Rotation)
        states = ("interpolated" if turns else "exact") if moves else "broken"
        forecast = "exact" if moves and not turns else "broken"
        found = (self.states.verdict, self.float32.verdict, self.forecast.verdict)
        return found == (states, states, forecast)

    def row(self) -> dict[str, Any]:
        """The line of the table."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "flow": repr(self.states.flow),
            "float64": self.states.worst,
            "float32": self.float32.worst,
            "all of V": float(self.states.everywhere.max()),
            "interpolation": float(self.states.interpolation.max()),
            "verdict": self.states.verdict,
            "closed": repr(self.forecast.flow),
            "forecast": self.forecast.worst,
            "forecast verdict": self.forecast.verdict,
        }


def verified() -> Iterator[Verified]:
    """Verify the weights one by one, as they are rounded in their files.

    A G-RNN is tried on the flow of its data. The forecast pools over V, so it is tried on a closed
    one: the weights are those of any V.
    """
    for name in pretrained():
        record, model = pretrained_record(name), load_pretrained(name)
        assert isinstance(model, Forecaster)
        recipe, moves = from_json(record["recipe"]), len(model.flow) > 1
        flow = model.flow if moves else recipe.data.test_flow
        states, float32 = (
            of_states(model, recipe, flow, dtype=dtype) for dtype in (torch.float64, torch.float32)
        )
        forecast = of_whole(model, recipe, flow)
        yield Verified(name, record["weights"]["sha256"], moves, states, float32, forecast)


def of_states(
    model: Model,
    recipe: Recipe | None,
    flow: Flow,
    *,
    steps: int = STEPS,
    dtype: torch.dtype = torch.float64,
) -> Report:
    """How flow equivariant the lifted states inside a model are; `recipe` says what it has seen."""
    inside = model.sequence if isinstance(model, SequenceForecaster) else model.rnn
    video = _video(model, recipe, flow, steps, canvas(recipe), dtype)
    return verify(inside, video, flow, dtype=dtype)


def of_whole(
    model: Model,
    recipe: Recipe | None,
    flow: Flow,
    *,
    steps: int = STEPS,
    dtype: torch.dtype = torch.float64,
) -> Report:
    """How flow equivariant a whole model is, with its weights on a closed V where there is one."""
    whole, closed = on_closed(model, flow)
    own = canvas(recipe) if closed == flow else None
    return verify(whole, _video(model, recipe, closed, steps, own, dtype), closed, dtype=dtype)


def _video(
    model: Model,
    recipe: Recipe | None,
    flow: Flow,
    steps: int,
    canvas: tuple[int, int] | None,
    dtype: torch.dtype,
) -> Tensor:
    shape = {"steps": steps, "channels": int(str(model.config["in_channels"]))}
    if canvas is None:
        tried = flow.velocities[(flow.velocities != 0).any(1)]
        video = sharp_video(flow, tried, dtype, **shape)
    else:
        video = sample_video(flow, canvas=canvas, **shape)
    return video if recipe is None else video.abs()  # recipes are of videos in [0, 1]


def canvas(recipe: Recipe | None) -> tuple[int, int] | None:
    """The canvas to verify weights on: that of their training where the flow interpolates, since
    the loss depends on it. Where it is exact any canvas will do, so there is none to name."""
    return None if recipe is None or recipe.data.test_flow.exact else recipe.data.canvas


def on_closed(model: Model, flow: Flow) -> tuple[Model, Flow]:
    """The model with its weights on a V of the flow's kind that is a group, and that V.

    What pools over V is equivariant there at best, for elsewhere velocities leave V. A model at
    rest stays as it is, one on a closed V of translations on that V. Weights that belong to their
    V, those of a learned transport or of mixed velocities, stay on it, and so do motions that have
    no such V.
    """
    closed: Flow
    if isinstance(flow, Rotation):
        closed = Rotation(velocities=[0, 90, 180, 270], group=flow.group)
    elif isinstance(flow, Translation) and flow.closed is not None:
        return model, flow
    elif isinstance(flow, Translation):
        size = int(str(model.config.get("kernel_size", 3)))
        closed = Translation(closed=(max(5, size // 2),) * flow.group.dim)  # pads wrap once
    else:
        return model, flow
    if len(model.flow) == 1:
        return model, closed
    config: dict[str, Any] = {**model.config, "flow": closed}
    if config.get("transport") == "learned" or config.get("mixing") is not None:
        return model, flow
    whole = type(model)(**config)
    whole.load_state_dict(model.state_dict())
    return whole, closed
