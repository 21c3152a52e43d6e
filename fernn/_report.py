"""What `verify` found: errors per step and velocity, a verdict, a table and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fernn.flows import Flow, Translation

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
"""What comes in from outside the canvas reaches inwards by convolution; it may err by so much."""


def allowed(interpolation: Tensor, faint: float) -> Tensor:
    """The errors that interpolation explains, given its cost at each velocity and step [ν̂, T].

    Where it blurs much each estimate is rough, so there the largest of all is allowed.
    """
    return torch.where(interpolation > BLUR, interpolation.max(), interpolation) + faint


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
    video runs backwards.
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
        - inconclusive: interpolation blurs this video too much to tell, or motion is too slow;
        - vacuous: no ν − ν̂ lies in V, so nothing was compared.
        """
        if not any(self.pairs):
            return "vacuous"
        rounding = self.worst <= self.tolerance
        if rounding and (self.sharp or self.tolerance < FAINT):  # half precision hides as much
            return "exact"
        exact = self.flow.exact and self.flow.permutes(self.velocities)
        faint = self.tolerance if exact else max(self.tolerance, FAINT)
        if not bool((self.error <= allowed(self.interpolation, faint)).all()):
            return "broken"
        return "inconclusive" if self._blurred or not self.sharp else "interpolated"

    @property
    def _blurred(self) -> bool:
        return bool((self.interpolation > BLUR).any())

    def __str__(self) -> str:
        shown = self.error.amax(1).argsort(descending=True)[:12].sort().values.tolist()
        size = max(5, *(len(_label(self.velocities[i])) for i in shown))
        lines = [
            f"{self.flow!r}, {str(self.dtype).removeprefix('torch.')}: {self.verdict}",
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
        axes = figure.subplots()
        for velocity, row in zip(self.velocities, self.error, strict=True):
            # A logarithmic axis has no zero; errors below 1e-18 are drawn there.
            axes.plot(self.times, row.clamp(min=1e-18), marker=".", label=f"ν̂ = {_label(velocity)}")
        axes.axhline(self.tolerance, color="black", linestyle=":", linewidth=1)
        axes.annotate("rounding", (self.times[0], self.tolerance), fontsize=8, va="bottom")
        axes.set(yscale="log", xlabel="time step", ylabel="relative error", title=repr(self.flow))
        if len(self.velocities) <= 12:
            axes.legend(fontsize=7, ncols=2)
        figure.savefig(path, dpi=150)


def _number(value: float | Tensor, width: int, compared: int = 1) -> str:
    """An error of so many comparisons."""
    if not compared:
        return f"{'–':>{width}}"
    return f"{float(value):{width}.1e}" if value else f"{0:>{width}}"


def _label(velocity: Sequence[float]) -> str:
    parts = ", ".join(f"{component:g}" for component in velocity)
    return parts if len(velocity) == 1 else f"({parts})"
