"""Checks shared by every room: each error names the argument, the condition, the value, the fix."""

from collections.abc import Sequence
from math import isfinite
from numbers import Real
from operator import index

import torch
from torch import Tensor

from fernn._nearest import nearest


def choice(name: str, value: object, options: Sequence[str]) -> None:
    """Raise unless `value` is one of `options`, with the one that it may have meant."""
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        hint = nearest(str(value), options)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.{hint}")


def count(name: str, value: object, *, least: int) -> int:
    """Raise unless `value` is an integer of at least `least`."""
    whole = _integer(value)
    if whole is None or whole < least:
        known = {0: "a non-negative integer", 1: "a positive integer"}
        wanted = known.get(least, f"an integer of at least {least}")
        raise ValueError(f"`{name}` must be {wanted}, got {value!r}.")
    return whole


def _integer(value: object) -> int | None:
    """`value` where it is one integer of whatever library; a truth value is none."""
    if isinstance(value, int):  # asked first: of a number left open, `torch.compile` knows no more
        return None if isinstance(value, bool) else value
    try:
        return index(value)  # type: ignore[arg-type]  # it raises where it cannot
    except TypeError:
        return None


def odd(name: str, value: object) -> int:
    """Raise unless `value` is a positive odd integer: a centred kernel."""
    size = count(name, value, least=1)
    if size % 2 == 0:
        raise ValueError(
            f"`{name}` must be odd, got {size}: an even kernel has no centre, so its convolution "
            f"moves the signal by half a pixel. Use {size + 1}."
        )
    return size


def signal(name: str, x: object, *, rank: int, layout: str, channels: int | None = None) -> None:
    """Raise unless `x` is a non-empty floating-point tensor of `rank` axes named by `layout`."""
    floating(name, x)
    assert isinstance(x, Tensor)
    if x.ndim != rank:
        raise ValueError(
            f"`{name}` must have {rank} axes {layout}, got {x.ndim} in shape {tuple(x.shape)}."
        )
    if x.numel() == 0:
        raise ValueError(
            f"`{name}` must not be empty, got shape {tuple(x.shape)} for {layout}: "
            "every axis needs at least one entry."
        )
    if channels is not None:
        axis = layout.strip("[]").split(", ").index("C")
        if x.shape[axis] != channels:
            raise ValueError(
                f"`{name}` must have {channels} channels in {layout}, "
                f"got {x.shape[axis]} in shape {tuple(x.shape)}."
            )


def layout(axes: str, dim: int) -> str:
    """The names of a signal's axes, those before the canvas and those of it.

    >>> layout("B, C", 2)
    '[B, C, H, W]'
    """
    return f"[{axes}, " + ", ".join("DHW"[-dim:]) + "]"


def floating(name: str, x: object) -> None:
    """Raise unless `x` is a real floating-point tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"`{name}` must be a torch.Tensor, got {type(x).__name__}.")
    if not x.is_floating_point():
        raise TypeError(
            f"`{name}` must be a real floating-point tensor, got {x.dtype}. "
            f"Convert it first, for example `{name}.float(){' / 255' * (x.dtype == torch.uint8)}`."
        )


def whole(name: str, x: Tensor) -> None:
    """Raise unless `x` holds integers: a lattice has no place between its points."""
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"`{name}` must be a tensor of integers, got {x.dtype}.")


def same_place(name: str, x: Tensor, parameter: Tensor) -> None:
    """Raise unless `x` lies on the device of the module's parameters and has their precision."""
    if x.device != parameter.device:
        raise ValueError(
            f"`{name}` must be on the model's device {parameter.device}, got {x.device}. "
            f"Move one of them with `.to(...)`."
        )
    wide = torch.float64 in (x.dtype, parameter.dtype)  # which autocast leaves alone
    cast = not x.is_meta and torch.is_autocast_enabled(x.device.type)  # the meta device has none
    if x.dtype != parameter.dtype and (wide or not cast):
        raise TypeError(
            f"`{name}` must have the model's dtype {parameter.dtype}, got {x.dtype}. "
            f"Convert it with `{name}.to({parameter.dtype})`"
            f"{'' if wide else ' or use torch.autocast'}."
        )


def kind(name: str, value: object, expected: type, example: str) -> None:
    """Raise unless `value` is an `expected`; `example` shows one."""
    if not isinstance(value, expected):
        shape = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        raise TypeError(
            f"`{name}` must be a {expected.__name__}, got {shape or repr(value)}. "
            f"Give for example {example}."
        )


def finite(name: str, values: Sequence[Sequence[object]]) -> None:
    """Raise unless every component is a finite real number."""
    for value in values:
        if not all(isinstance(part, Real) and isfinite(part) for part in value):
            raise ValueError(f"`{name}` must be finite and real, got {tuple(value)}.")


def components(name: str, x: Tensor, size: int, owner: object) -> None:
    """Raise unless the last axis of `x` has the `size` components that `owner` takes."""
    if x.ndim == 0 or x.shape[-1] != size:
        raise ValueError(
            f"`{name}` must have {size} component{'s' * (size > 1)} for {owner!r}, "
            f"got shape {tuple(x.shape)}."
        )
