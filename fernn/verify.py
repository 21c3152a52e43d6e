"""How flow equivariant is a model? The theorem's error, per step and velocity, for any model."""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fernn import _check
from fernn._comparison import Comparison, Run, leaky, sharpness
from fernn._report import BLUR, FAINT, TOLERANCES, Report
from fernn.flows import Flow, Rotation, Translation, Velocity

__all__ = [
    "BLUR",
    "TOLERANCES",
    "Report",
    "assert_flow_equivariant",
    "sample_video",
    "sharp_video",
    "verify",
]

Model = nn.Module | Callable[[Tensor], Any]

INTERPOLATED = ((33, 33), (65, 65), (97, 97))
"""Canvases where a flow interpolates, which needs room to be accurate, more of it where slow."""
SHARP = 2.0
"""A video that is made is larger until it is so sharp."""


def verify(
    model: Model,
    video: Tensor | None,
    flow: Flow,
    *,
    velocities: Sequence[Velocity] | None = None,
    start: int | None = None,
    dtype: torch.dtype = torch.float64,
    features: bool | None = None,
) -> Report:
    """Move the input of any model with each ν̂ and compare its output with the moved output.

    `model` maps video [B, T, C, *X] to a lifted sequence [B, T, V, K, *X], a sequence
    [B, T, K, *X] or a value [B, K], which should not change; of a tuple the first part counts. It
    is copied, put in eval mode and run in `dtype`. `velocities` are the ν̂ to try, by default all
    of V but zero. Without a `video` (None) a smooth random one is made, of the channels that
    `model.in_channels` says, or one. `start` is the time of the first output: 0 by default, and T
    where the model says that it forecasts (Forecaster: yes).
    `features` says that channels carry the orientations of the flow's group; by default the model
    says (FlowRNN: yes), else where there is a V axis.

    >>> from fernn import FlowRNN, Translation
    >>> flow = Translation(radius=1)
    >>> verify(FlowRNN(1, 4, flow=flow), torch.rand(1, 6, 1, 7, 8), flow).verdict
    'exact'
    >>> verify(FlowRNN(1, 4, flow=Translation(radius=0)), torch.rand(1, 6, 1, 7, 8), flow).verdict
    'broken'
    """
    _check.kind("flow", flow, Flow, "Translation(radius=2)")
    if dtype not in TOLERANCES:
        raise ValueError(f"`dtype` must be one of {', '.join(map(str, TOLERANCES))}, got {dtype}.")
    chosen = flow.velocities if velocities is None else [flow._velocity(v) for v in velocities]
    if len(chosen) == 0:
        raise ValueError("`velocities` must not be empty: give one, or None for all of V.")
    tried = torch.stack(list(chosen))
    tried = tried[(tried != 0).any(1)]
    if len(tried) == 0:
        raise ValueError(
            f"`flow` must have a velocity other than zero to try, got {flow!r}. To test a G-RNN, "
            "pass the flow that it should be equivariant to, for example Translation(radius=1)."
        )
    made = video is None
    if video is None:
        video = sharp_video(flow, tried, dtype, channels=_channels(model))
    _check.floating("video", video)
    if video.ndim < 3 + flow.group.dim or video.shape[1] < 2:
        raise ValueError(
            "`video` must be [B, T, C, *X] with at least 2 frames, because before any motion every "
            f"model is equivariant, got shape {tuple(video.shape)}."
        )
    run = _runner(model, dtype)
    video = video.double()
    if all(torch.equal(flow.act_sequence(video, v), video) for v in tried):
        raise ValueError("`video` must change when it moves, got one that no velocity changes.")
    base = _first(run, video, dtype, made=made)
    own = getattr(model, "flow", None)
    lifted = base.ndim == 4 + flow.group.dim and base.shape[2] > 1
    if lifted and isinstance(own, Flow) and not torch.equal(own.velocities, flow.velocities):
        raise ValueError(
            f"`flow` must be the model's own where the output is lifted, {own!r}, got {flow!r}. "
            "To try other velocities on it, give them as `velocities`."
        )
    if start is None:
        start = _start(model, base, video, flow)
    _check.count("start", start, least=0)
    if features is None:
        own = getattr(model, "features", None)  # elsewhere often a module of that name
        features = own if isinstance(own, bool) else base.ndim == 4 + flow.group.dim
    other = _another(run, video, base, dtype) if base.ndim == 2 else None
    compare = Comparison(flow, tried, base, video.shape[3:], start, features, dtype, other)
    error, everywhere, interpolation = compare.measure(run, video)
    pairs = [int((flow.relative(v) >= 0).sum()) if compare.lifted else 1 for v in tried]
    compared = tried[torch.tensor(pairs, device="cpu") > 0]
    return Report(
        flow=flow,
        velocities=tuple(tuple(v) for v in tried.tolist()),
        times=tuple(range(start, start + compare.steps)),
        pairs=tuple(pairs),
        error=error,
        everywhere=everywhere,
        interpolation=interpolation,
        dtype=dtype,
        tolerance=TOLERANCES[dtype],
        pooled=not compare.lifted and _moves(model) and not _closed(flow),
        sharp=len(compared) == 0
        or sharpness(flow, compared, video, dtype, values=not compare.moves) > 1,
        rounded=compare.rounded,
    )


def assert_flow_equivariant(
    model: Model,
    flow: Flow,
    video: Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    tolerance: float | None = None,
    start: int | None = None,
    features: bool | None = None,
) -> None:
    """Fail with the table of errors unless `model` is flow equivariant: one line in a test.

    Without a `video`, a smooth random one of one channel and seven frames is made. Without a
    `tolerance`, rounding is allowed, and what the flow itself loses by interpolation. `start` is
    the time of the first output, as in `verify`.
    """
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"`tolerance` must be a number of at least 0, got {tolerance!r}.")
    report = verify(model, video, flow, start=start, dtype=dtype, features=features)
    if report.verdict == "vacuous":
        raise AssertionError(f"No ν − ν̂ lies in V for any ν̂, so nothing was compared.\n{report}")
    if report.verdict == "inconclusive" and tolerance is None:
        raise AssertionError(f"Whether the model is flow equivariant is not known.\n{report}")
    if report.verdict == "broken" if tolerance is None else not report.worst <= tolerance:
        raise AssertionError(f"The model is not flow equivariant.\n{report}")


def sample_video(
    flow: Flow,
    *,
    channels: int = 1,
    steps: int = 7,
    canvas: Sequence[int] | None = None,
    seed: int = 0,
) -> Tensor:
    """Random frames that a flow can be tried on: smooth bumps, inside the disc that rotation keeps;
    where nothing is interpolated every other frame is below zero.

    Shapes: [B, steps, channels, *canvas], two videos, one where it interpolates, which takes
    longer; the canvas is the flow's own where V is closed.
    """
    dim = flow.group.dim
    small = (15, 15) if isinstance(flow, Rotation) else {1: (16,), 2: (13, 15), 3: (5, 6, 7)}[dim]
    usual = small if flow.exact else INTERPOLATED[0]
    shape = tuple(canvas or getattr(flow, "closed", None) or usual)
    drawn: Any = {
        "generator": torch.Generator().manual_seed(seed),
        "dtype": torch.double,
        "device": "cpu",
    }
    axes = [torch.arange(size, dtype=torch.double, device="cpu") - (size - 1) / 2 for size in shape]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
    radius = min(shape) / 2
    bumps = (2 if flow.exact else 1, steps, channels, 3)
    centre = (torch.rand(*bumps, dim, **drawn) - 0.5) * radius
    height = torch.rand(bumps, **drawn) + 0.5
    if flow.exact:  # a model may treat what is below zero otherwise; interpolation blurs it more
        height[:, 1::2] *= -1
    centre = centre.reshape(*bumps, *(1,) * dim, dim)
    distance = ((grid - centre) ** 2).sum(-1)
    width = max(1.0, radius / 5)
    return (height.reshape(*bumps, *(1,) * dim) * torch.exp(-distance / (2 * width**2))).sum(3)


def sharp_video(
    flow: Flow, tried: Tensor, dtype: torch.dtype, *, channels: int = 1, steps: int = 7
) -> Tensor:
    """The video that velocities are tried on where none was given: where they interpolate, on a
    canvas so large that the control fails on it, if any is."""
    if flow.exact and flow.permutes(tried.tolist()):
        return sample_video(flow, channels=channels, steps=steps)
    for canvas in INTERPOLATED:
        video = sample_video(flow, channels=channels, steps=steps, canvas=canvas).abs()
        if sharpness(flow, tried, video, dtype) >= SHARP:
            break
    return video


def _first(run: Run, video: Tensor, dtype: torch.dtype, *, made: bool) -> Tensor:
    """The output for the video as it is; `made` says that it is no video of the caller's."""
    try:
        out = run(video)
    except (RuntimeError, ValueError) as error:
        if not made:
            raise
        raise ValueError(
            f"`model` fails on the video that is made without `video`, of shape "
            f"{tuple(video.shape)}: {str(error).rstrip('.')}. Where it takes others, give one."
        ) from error
    if not bool(out.isfinite().all()):
        hint = " The one that is made without it may be below zero: give your own." if made else ""
        raise ValueError(
            f"`model` must give finite outputs on `video`, got some that are not.{hint}"
        )
    if not bool(out.any()):
        raise ValueError("`model` must give outputs that are not all zero on `video`, got zeros.")
    rounding = 4 * torch.finfo(dtype).eps * out.norm()
    if bool(
        (run(video) - out).norm() > max(TOLERANCES[dtype] * (out - out.mean()).norm(), rounding)
    ):
        raise ValueError(
            "`model` must give the same output for the same video again, got another: it draws "
            "random numbers, or remembers something from call to call."
        )
    return out


def _another(run: Run, video: Tensor, base: Tensor, dtype: torch.dtype) -> Tensor:
    """Values [B, K] of another video, to say how much they could have been otherwise: of this one
    backwards or, where their order does not matter, of its leaky sum."""
    backwards = run(video.flip(1))
    rounding = 4 * torch.finfo(dtype).eps * base.norm()
    if TOLERANCES[dtype] < FAINT and bool((backwards - base).norm() <= rounding):
        return run(leaky(video))
    return backwards


def _channels(model: Model) -> int:
    """The channels of the video that a model says it takes, one where it says nothing."""
    about = getattr(model, "config", None)
    said = about.get("in_channels") if isinstance(about, dict) else None
    said = getattr(model, "in_channels", None) if said is None else said
    return said if isinstance(said, int) else 1


def _start(model: Model, base: Tensor, video: Tensor, flow: Flow) -> int:
    """The time of the first output where nobody has said it."""
    if getattr(model, "forecasts", False) is True:
        return video.shape[1]
    moves = base.ndim in (3 + flow.group.dim, 4 + flow.group.dim)
    if moves and base.shape[1] != video.shape[1]:
        raise ValueError(
            f"`start`, the time of the first output, must be given where the output has not as "
            f"many steps as the video, got {base.shape[1]} for {video.shape[1]} frames. Give "
            f"start={video.shape[1]} for a forecast."
        )
    return 0


def _moves(model: Model) -> bool:
    """Whether a model says that it has a V of several velocities."""
    own = getattr(model, "flow", None)
    return isinstance(own, Flow) and len(own) > 1


def _closed(flow: Flow) -> bool:
    """Whether V has ν − ν̂ with any two of its velocities. On one that turns this does not help what
    is pooled, since ordinary convolutions do not turn along."""
    rest = not bool(flow.velocities.any())
    return isinstance(flow, Translation) and (flow.closed is not None or rest)


def _runner(model: Model, dtype: torch.dtype) -> Run:
    """The model as a function from float64 video to float64 output, run in `dtype` inside."""
    if not callable(model):
        raise TypeError(f"`model` must be a module, or a function of a video, got {model!r}.")
    if isinstance(model, nn.Module):
        model = copy.deepcopy(model).to(dtype).eval()

    def run(video: Tensor) -> Tensor:
        try:
            with torch.no_grad():
                out = model(video.to(dtype, copy=True))  # it may write into what it is given
        except (RuntimeError, TypeError) as error:
            known = re.search("dtype|[dD]ouble", str(error))
            if isinstance(model, nn.Module) or not known:
                raise
            raise TypeError(
                f"`model` is a function, which is given {dtype}, and what is in it cannot take "
                f"that: {error} Pass the module itself, convert it, or pass another `dtype`."
            ) from error
        out = out[0] if isinstance(out, tuple) else out
        if not isinstance(out, Tensor):
            raise TypeError(f"`model` must return a tensor, got {type(out).__name__}.")
        return out.double()

    return run
