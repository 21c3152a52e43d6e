"""Outputs for moved inputs beside the output moved: what `verify` measures."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fernn._report import BLUR, FAINT, TOLERANCES, allowed
from fernn.flows import Flow

Run = Callable[[Tensor], Tensor]

LEAK = 0.25
"""How much of itself the control of `sharpness` keeps from frame to frame: little, as of a model
that has a short memory."""

FADED = 0.1
"""Errors count by no less than this share of the most that an output has varied."""


class Comparison:
    """Compares outputs for moved inputs with the base output, moved: relative error per step.

    Where the flow moves parts of the canvas out of it, as a turn does with the corners, nothing can
    be said of what comes in from outside, so only what stays inside is compared.
    """

    def __init__(
        self,
        flow: Flow,
        tried: Tensor,
        base: Tensor,
        canvas: Sequence[int],
        start: int,
        features: bool,
        dtype: torch.dtype,
        other: Tensor | None,
    ) -> None:
        dim = flow.group.dim
        self.lifted = base.ndim == 4 + dim and base.shape[2] > 1
        if base.ndim not in (2, 3 + dim, 4 + dim):
            raise ValueError(
                f"`model` must return [B, T, V, K, *X], [B, T, K, *X] or [B, K] with {dim} spatial "
                f"axes for {flow!r}, got shape {tuple(base.shape)}."
            )
        if base.ndim > 2 and base.shape[-dim:] != canvas:
            raise ValueError(
                f"`model` must keep the canvas, for else its output moves at another speed, got "
                f"{tuple(base.shape[-dim:])} for a video of {tuple(canvas)}."
            )
        if self.lifted and base.shape[2] != len(flow):
            raise ValueError(
                f"`flow` must be the model's own where the output is lifted: the output has "
                f"{base.shape[2]} velocities, {flow!r} has {len(flow)}."
            )
        self.flow, self.tried, self.base, self.start = flow, tried, base, start
        self.moves = base.ndim > 2
        self.steps = base.shape[1] if self.moves else 1
        self.features = features
        self.exact = flow.exact and flow.permutes(tried.tolist())
        self.kept = None if self.exact or not self.moves else self._kept(tried)
        self.other = other
        self.rounding, self.tolerance = 4 * torch.finfo(dtype).eps, TOLERANCES[dtype]
        self.rounded = False

    def measure(self, run: Run, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The errors where ν − ν̂ ∈ V, those over all of V, and what interpolation costs by itself,
        the largest so far in time: [ν̂, T] each."""
        rows = [self._errors(run(self.flow.act_sequence(video, v)), v) for v in self.tried]
        costs = [
            torch.zeros(self.steps, dtype=torch.double, device="cpu")
            if self.exact
            else self._interpolation(run(self._there_and_back(video, v)), v)
            for v in self.tried
        ]
        error, everywhere = (torch.stack(part) for part in zip(*rows, strict=True))
        cost = torch.stack(costs).cummax(1).values
        # There and back may cancel in a value, which is one number: the largest counts for all.
        return error, everywhere, cost if self.moves else cost.amax(0).expand_as(cost)

    def _errors(self, moved: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        expected = self._move(self.base, velocity)
        if not self.lifted:
            error = _ratio(self._norm(moved - expected), self._variation(expected))
            return error, error
        index = self.flow.relative(velocity)
        inside = index >= 0
        expected = expected[:, :, index[inside]]
        wrong = self._norm(moved[:, :, inside] - expected)
        missing = self._norm(moved[:, :, ~inside])
        whole = (self._norm(expected) ** 2 + missing**2).sqrt()
        everywhere = _ratio((wrong**2 + missing**2).sqrt(), whole)
        return _ratio(wrong, self._variation(expected)), everywhere

    def _there_and_back(self, video: Tensor, velocity: Tensor) -> Tensor:
        return self.flow.act_sequence(self.flow.act_sequence(video, velocity), -velocity)

    def _interpolation(self, round_trip: Tensor, velocity: Tensor) -> Tensor:
        back = self._move(self._move(self.base, velocity), -velocity)
        loss = self._norm(round_trip - self.base) + self._norm(back - self.base)
        return _ratio(loss, self._variation(self.base))

    def _move(self, x: Tensor, velocity: Tensor) -> Tensor:
        if not self.moves:
            return x
        return self.flow.act_sequence(x, velocity, start=self.start, features=self.features)

    def _norm(self, x: Tensor) -> Tensor:
        """Norms per step, of what is compared: [T]."""
        x = x if self.kept is None else x * self.kept
        x = x.transpose(0, 1).flatten(1) if self.moves else x.flatten()[None]
        norm: Tensor = torch.linalg.vector_norm(x, dim=1)
        return norm.cpu()

    def _variation(self, x: Tensor) -> Tensor:
        """How much of x could have come out otherwise, per step: [T].

        Where it fades, as along a forecast, rounding of what it was before does not, so that a
        share of the largest until then counts.
        """
        if self.other is not None:
            change = x - self.other
        else:
            kept = torch.ones_like(x) if self.kept is None else self.kept
            canvas = tuple(range(-self.flow.group.dim, 0))
            mean = (x * kept).sum(canvas, keepdim=True) / kept.sum(canvas, keepdim=True)
            change = x - mean
        varied = self._norm(change)
        faded = FADED * varied.cummax(0).values
        varied, rounding = torch.maximum(varied, faded), self.rounding * self._norm(x)
        # A step that cannot vary, as of a first frame without anything in it, hides no other.
        self.rounded |= bool((rounding > BLUR * varied.amax()).any())
        return torch.maximum(varied, rounding / self.tolerance)

    def _kept(self, tried: Tensor) -> Tensor:
        """Pixels that stay inside: no velocity (of V or tried, forward or back, once or twice in a
        row) has brought in anything from outside the canvas up to that step. Ones and zeros
        [T, 1, ..., *X]."""
        canvas = self.base.shape[-self.flow.group.dim :]
        kept = self.base.new_ones(1, self.steps, *canvas)
        velocities = torch.cat([self.flow.velocities, tried.to(self.flow.velocities)])
        velocities = torch.cat([velocities, -velocities]).unique(dim=0)
        for _ in range(2):
            moved = [self.flow.act_sequence(kept, v, start=self.start) for v in velocities]
            inside = torch.stack([kept, *moved]).amin(0).cummin(1).values
            kept = (inside > 1 - 1e-6).to(kept)
        kept = kept.reshape(self.steps, *(1,) * (self.base.ndim - 2 - len(canvas)), *canvas)
        last = kept[-1].reshape(canvas)
        if _range(self.base, last) < FAINT * _range(self.base, torch.ones_like(last)):
            raise ValueError(
                f"`video` must have more of what moves away from its border, for {self.flow!r} "
                f"moves in other things from there within {self.start + self.steps} frames of "
                f"{tuple(canvas)}. Give a larger or a shorter video."
            )
        return kept


def sharpness(
    flow: Flow, tried: Tensor, video: Tensor, dtype: torch.dtype, *, values: bool = False
) -> float:
    """How well a video tells models apart at these velocities: from 1 on it does.

    A leaky sum of its frames is not flow equivariant, nor is the energy of its last state
    invariant, which stands for models that answer with `values`. So it must be seen to fail: this
    is the largest of its errors, each over what is allowed there. Where motion is slow, what the
    sum forgets of the way lies below what interpolation costs.
    """
    run = _energy if values else leaky
    other = run(video.flip(1)) if values else None
    try:
        control = Comparison(
            flow, tried, run(video), video.shape[3:], 0, False, torch.float64, other
        )
    except ValueError:  # too little stays inside
        return 0.0
    if control.exact:
        return torch.inf
    error, _, interpolation = control.measure(run, video)
    return float((error / allowed(interpolation, max(FAINT, TOLERANCES[dtype]))).max())


def leaky(video: Tensor) -> Tensor:
    """h ← h/4 + f."""
    states = [video[:, 0]]
    for frame in video[:, 1:].unbind(1):
        states.append(LEAK * states[-1] + frame)
    return torch.stack(states, 1)


def _energy(video: Tensor) -> Tensor:
    return leaky(video)[:, -1].square().flatten(2).mean(2)


def _ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, where nothing over nothing is nothing."""
    return torch.where(part == 0, part, part / whole)


def _range(x: Tensor, kept: Tensor) -> float:
    """By how much x [..., *X] differs over the pixels kept [*X], at most; −∞ where none is."""
    canvas = tuple(range(-kept.ndim, 0))
    most, least = (x.masked_fill(kept == 0, end) for end in (-torch.inf, torch.inf))
    return float((most.amax(canvas) - least.amin(canvas)).max())
