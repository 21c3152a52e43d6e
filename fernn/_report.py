"""What `verify` found: errors per step and velocity, a verdict, a table and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fernn._files import written_whole
from fernn.flows import Flow, Translation

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""The relative error that rounding may cause in a short recurrence, by dtype."""

BLUR = 0.1
"""Where interpolation alone changes an output by more than this, errors below it say nothing."""


FAINT = 1e-3
"""Error allowed because values from outside the canvas spread inwards through convolutions."""


def allowed(interpolation: Tensor, faint: float) -> Tensor:
    """The errors that interpolation explains, given its cost at each velocity and step [ν̂, T].

    From the first step at which some velocity blurs by more than `BLUR`, estimates are rough: every
    velocity that interpolates may err by twice the largest of them.
    """
    rough = (interpolation > BLUR).any(0) & (interpolation > FAINT)
    return torch.where(rough, 2 * interpolation.max(), interpolation) + faint


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Relative errors of h_t[ψ(ν̂)·f](ν) = ψ_{t−1}(ν̂)·h_t[f](ν − ν̂), tensors [ν̂, T] in float64.

    `error` compares the slices with ν − ν̂ in V, `pairs` of them, relative to how much the output
    varies over the canvas, all channels together, so that no constant hides it, and no less than a
    tenth of the most that it did before, so that breaks of what has faded count less.
    `everywhere` counts all of V, taking a slice whose partner lies outside V to be wholly wrong:
    the price of truncation. Where the flow interpolates, `interpolation` estimates what that costs,
    by moving the input and the output there and back; it is the largest so far in time. What a flow
    moves in from outside the canvas, as a turn does at the corners, is not compared. Outputs
    without a V axis are compared as they are, and values [B, K] relative to their change when the
    video runs backwards or, where that changes nothing, when its frames linger.
    """

    flow: Flow
    velocities: tuple[tuple[float, ...], ...]
    times: tuple[int, ...]
    pairs: tuple[int, ...]
    error: Tensor
    everywhere: Tensor
    interpolation: Tensor
    dtype: torch.dtype
    tolerance: float
    pooled: bool = False
    """Whether the output was pooled over a V that is truncated or turns, where only lifted states
    can be exact."""
    sharp: bool = True
    """Whether the video tells models apart: a leaky sum of its frames, which is not flow
    equivariant, fails on it."""
    rounded: bool = False
    """Whether rounding, in this precision, may be more than a tenth of what varies."""

    @property
    def worst(self) -> float:
        """The largest error over all velocities and steps."""
        return float(self.error.max())

    @property
    def verdict(self) -> str:
        """exact, interpolated or broken; inconclusive or vacuous where nothing can be said.

        - exact: every error is rounding;
        - interpolated: no error exceeds what the flow's interpolation loses by itself; a smaller
          break is not seen;
        - broken: some error does;
        - inconclusive: interpolation blurs this video too much to tell, motion is too slow, or
          the precision too low;
        - vacuous: no ν − ν̂ lies in V, so nothing was compared.
        """
        if not any(self.pairs):
            return "vacuous"
        exact = self.flow.exact and self.flow.permutes(self.velocities)
        faint = self.tolerance if exact else max(self.tolerance, FAINT)
        if not bool((self.error <= allowed(self.interpolation, faint)).all()):
            return "broken"
        if self.rounded:
            return "inconclusive"
        # Half precision hides as much as interpolation does.
        if self.worst <= self.tolerance and (exact or self.tolerance < FAINT):
            return "exact"
        return "inconclusive" if self._blurred or not self.sharp else "interpolated"

    @property
    def _blurred(self) -> bool:
        return bool((self.interpolation > BLUR).any())

    def __str__(self) -> str:
        shown = self._worst(12)
        size = max(5, *(len(_label(self.velocities[i])) for i in shown))
        lines = [
            self._headline,
            f"{'ν̂':>{size}}  slices  "
            + " ".join(f"{'t=' + str(t):>8}" for t in self.times)
            + "  all of V  interpolation",
        ]
        lines += [
            f"{_label(self.velocities[i]):>{size}}  {self.pairs[i]:>6}  "
            + " ".join(_number(value, 8, self.pairs[i]) for value in self.error[i].tolist())
            + f"  {_number(self.everywhere[i].max(), 8)}"
            + f"  {_number(self.interpolation[i].max(), 13)}"
            for i in shown
        ]
        if len(shown) < len(self.velocities):
            lines.append(f"… {len(self.velocities) - len(shown)} more velocities, none worse.")
        return "\n".join([*lines, *self._why()])

    @property
    def _headline(self) -> str:
        return f"{self.flow!r}, {str(self.dtype).removeprefix('torch.')}: {self.verdict}"

    def _worst(self, count: int) -> list[int]:
        """The velocities of the largest errors, as they are ordered."""
        return self.error.amax(1).argsort(descending=True)[:count].sort().values.tolist()

    def _why(self) -> list[str]:
        """What the verdict comes from, where the numbers alone do not say it."""
        if self.pooled and self.verdict == "broken":
            if isinstance(self.flow, Translation):
                why = (
                    "V is truncated: if the output pools over it, it is exact on a closed V alone, "
                    "for example Translation(closed=(5, 5))."
                )
            else:
                why = (
                    "If the output pools over V, it can be flow equivariant only where V is closed "
                    "and what follows turns along, which ordinary convolutions, as in a "
                    "Forecaster, do not."
                )
            return [f"{why} Lifted states, as of FlowRNN, can be exact."]
        if self.verdict == "inconclusive" and self.rounded:
            return [
                f"Nothing can be concluded: so small a part of the output varies that "
                f"{str(self.dtype).removeprefix('torch.')} rounds it away. "
                + (
                    "Try more channels or trained weights: drawn at random, few may leave nothing."
                    if self.dtype == torch.float64
                    else "Use a wider dtype."
                )
            ]
        if self.verdict == "inconclusive" and self._blurred:
            most = f"{self.interpolation.max():.2f}"
            return [
                f"Nothing can be concluded: moving the video there and back already changes the "
                f"output by {most}. Use a smoother or larger video."
            ]
        if self.verdict == "inconclusive":
            return [
                "Nothing can be concluded: a leaky sum of the frames, which is not flow "
                "equivariant, passes on this video, too. Its motion is slow, or interpolation "
                "blurs it. Use larger velocities, or a larger video of larger things."
            ]
        return []

    __repr__ = __str__

    def plot(self, path: str | Path) -> None:
        """Draw the error of every velocity against time to an image file (needs matplotlib)."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install 'fernn[experiments]'.") from None
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        paint(self, figure)
        with written_whole(Path(path)) as part:
            figure.savefig(part, format=Path(path).suffix[1:] or "png", dpi=150)


def paint(report: Report, figure: "FigureBase") -> None:
    """Draw the error of every velocity against time, the worst in colour and in the legend."""
    axes = figure.subplots()
    axes.set_yscale("symlog", linthresh=1e-18, linscale=2)  # a logarithmic one has no zero
    worst = report._worst(10)  # as many as matplotlib has colours
    compared = [i for i, pairs in enumerate(report.pairs) if pairs]
    for i in sorted(compared, key=worst.__contains__):  # on top of the others
        axes.plot(
            report.times,
            report.error[i],
            marker=".",
            color=None if i in worst else "0.8",
            label=f"ν̂ = {_label(report.velocities[i])}" if i in worst else None,
            clip_on=False,
        )
    if others := len({*compared} - {*worst}):
        axes.plot([], [], marker=".", color="0.8", label=f"{others} more, none worse")
    axes.axhline(report.tolerance, color="black", linestyle=":", linewidth=1)
    end = (report.times[-1], report.tolerance)
    axes.annotate("rounding", end, fontsize=8, ha="right", va="top")
    axes.set(xlabel="time step", ylabel="relative error")
    axes.set_ylim(bottom=0)
    axes.set_title(fill(report._headline, 60), fontsize=9)
    axes.locator_params("x", integer=True, min_n_ticks=1)
    if compared:
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _number(value: float | Tensor, width: int, compared: int = 1) -> str:
    """An error of so many comparisons."""
    if not compared:
        return f"{'–':>{width}}"
    return f"{float(value):{width}.1e}" if value else f"{0:>{width}}"


def _label(velocity: Sequence[float]) -> str:
    parts = ", ".join(f"{component:g}" for component in velocity)
    return parts if len(velocity) == 1 else f"({parts})"
