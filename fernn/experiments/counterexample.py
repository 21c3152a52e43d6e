"""The paper's counter-example, h_{t+1} = h_t + f_t on a bump: drawn for the G-RNN and the FERNN."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fernn.flows import Flow, Translation
from fernn.nn import FlowRNN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VELOCITY = (0, 4)
STEPS = 6
CANVAS = 31


@dataclass(frozen=True)
class Counterexample:
    """Input [T, H, W], G-RNN state [T, H, W] and FERNN state [T, V, H, W], at rest and moving."""

    flow: Flow
    still: tuple[Tensor, Tensor, Tensor]
    moving: tuple[Tensor, Tensor, Tensor]


def counterexample() -> Counterexample:
    """Sum a bump over time: the G-RNN leaves a train of bumps, the FERNN slice that moves along
    does not."""
    flow = Translation(velocities=[(0, -VELOCITY[1]), (0, 0), VELOCITY])
    axis = torch.arange(CANVAS, dtype=torch.float) - CANVAS // 2
    bump = torch.exp(-(axis[:, None] ** 2 + (axis[None, :] + 11) ** 2) / 4)
    still = bump.expand(1, STEPS, 1, CANVAS, CANVAS)
    return Counterexample(
        flow, _states(flow, still), _states(flow, flow.act_sequence(still, VELOCITY))
    )


def _states(flow: Flow, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    def adder(velocities: Flow) -> FlowRNN:
        rnn = FlowRNN(1, 1, flow=velocities, kernel_size=1, activation="identity")
        for parameter in rnn.parameters():
            nn.init.ones_(parameter)
        return rnn

    with torch.no_grad():
        plain = adder(Translation(radius=0))(video)[0][0, :, 0, 0]
        lifted = adder(flow)(video)[0][0, :, :, 0]
    return video[0, :, 0], plain, lifted


def drawn(example: Counterexample) -> "Figure":
    """Both inputs with the states they cause, a column a time step."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    velocities = [tuple(v) for v in example.flow.velocities.tolist()]
    labels = ["input $f_t$", "G-RNN $h_{t+1}$"]
    labels += [f"FERNN $h_{{t+1}}$\nν = ({v[0]}, {v[1]})" for v in velocities]
    figure = Figure(figsize=(13.2, 6.2), layout="constrained")
    left, right = figure.subfigures(1, 2, wspace=0.04)  # type: ignore[misc]  # an array of two
    titles = ["a bump at rest", f"a bump moving with ν̂ = {VELOCITY}"]
    for half, title, (f, plain, lifted) in zip(
        (left, right), titles, (example.still, example.moving), strict=True
    ):
        half.suptitle(title, fontsize=13)
        rows = [f, plain, *lifted.unbind(1)]
        grid = half.subplots(len(rows), STEPS)
        for row, (label, frames) in enumerate(zip(labels, rows, strict=True)):
            for t in range(STEPS):
                axes = grid[row, t]
                axes.imshow(
                    frames[t].numpy(),
                    cmap="magma",
                    norm=PowerNorm(0.6, 0, 1 if row == 0 else STEPS),
                )
                axes.set(xticks=[], yticks=[])
                if row == 0:
                    axes.set_title(f"t = {t}", fontsize=9)
            grid[row, 0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
        matched = 2 + velocities.index(VELOCITY if half is right else (0, 0))
        for t in range(STEPS):
            axes = grid[matched, t]
            axes.add_patch(
                Rectangle(
                    (0, 0), 1, 1, transform=axes.transAxes, fill=False, edgecolor="#35b779", lw=4
                )
            )
    figure.supxlabel(
        "The G-RNN's state lags behind a moving input and smears. One FERNN slice moves along "
        "(green): the flow of the input has become a shift in ν.",
        fontsize=11,
    )
    return figure
