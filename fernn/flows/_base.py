"""A flow: a group and a velocity set V. Everything a motion does, it does through its group."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fernn import _check
from fernn._constant import Constant
from fernn.groups import Group

Velocity = Sequence[float] | float | Tensor

MOST = 2**20
"""Velocities at most: a torus of 1024×1024."""


class Flow(ABC):
    """ψ_t(ν) = exp(tν) for every ν of a velocity set V: ψ_0 = e and ψ_s ψ_t = ψ_{s+t}.

    A flow is a frozen, hashable value whose `repr` evaluates back to it. Velocities commute
    pairwise; time is counted in frames.
    """

    def __init__(self, velocities: tuple[tuple[float, ...], ...]) -> None:
        self._velocities = velocities
        self._table = Constant(_tensor(velocities))
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"{self!r} is a value; make another instead of changing `{name}`.")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, object]:
        return self.config()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copied or unpickled by its arguments, which are checked again."""
        self.__dict__.update(type(self)(**state).__dict__)

    @property
    @abstractmethod
    def group(self) -> Group:
        """The group G that the flow moves in."""

    @abstractmethod
    def permutes(self, velocities: Sequence[Sequence[float]]) -> bool:
        """Whether ψ_t(ν) permutes pixels for all these ν: no interpolation, no loss."""

    @property
    def exact(self) -> bool:
        """Whether it does for all ν in V."""
        return self.permutes(self._velocities)

    @abstractmethod
    def exp(self, velocity: Tensor, time: Tensor) -> Tensor:
        """exp(tν) as elements of the group: velocity [*S, d], time [*S] → [*S, e]."""

    @abstractmethod
    def subtract(self, a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        """a − b in the algebra, in the representative that V would use."""

    @abstractmethod
    def config(self) -> dict[str, object]:
        """The arguments that make this flow, as JSON can hold them."""

    @abstractmethod
    def check_velocity(self, velocity: Tensor) -> None:
        """Raise unless the values of `velocity` generate a flow of this kind."""

    @abstractmethod
    def check_canvas(self, x: Tensor) -> None:
        """Raise unless the last axes of `x` are a canvas that this flow can move."""

    @abstractmethod
    def check_features(self, velocities: Sequence[Sequence[float]]) -> None:
        """Raise unless each velocity's ψ_1 maps the group's features onto themselves."""

    @abstractmethod
    def check_convolution(self, padding: str) -> None:
        """Raise unless convolution on this flow's group commutes with the flow."""

    @property
    def velocities(self) -> Tensor:
        """V as a table [V, d]."""
        return _tensor(self._velocities)

    def table(self, device: torch.device) -> Tensor:
        """V on a device, made once: a step then copies nothing from the host."""
        return self._table.on(device)

    @property
    def zero(self) -> int:
        """The index of the zero velocity, the frame at rest."""
        for index, velocity in enumerate(self._velocities):
            if not any(velocity):
                return index
        raise ValueError(
            f"`flow` must contain the zero velocity here, got {self!r}. "
            "Add it to `velocities`: it is the frame at rest."
        )

    def __len__(self) -> int:
        return len(self._velocities)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def _key(self) -> tuple[object, ...]:
        return (self._velocities, self.group)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.config().items())
        return f"{type(self).__name__}({arguments})"

    def act(
        self,
        x: Tensor,
        velocity: Velocity,
        time: int | float | Tensor = 1,
        *,
        features: bool = False,
    ) -> Tensor:
        """ψ_t(ν)·x: the signal after moving with ν for t frames.

        Shapes: velocity [d] or [*S, d], time scalar or [*S], x [*S, ..., *X]; S broadcasts. So one
        velocity moves everything, a tensor of velocities [B, d] moves each sample by its own.
        """
        _check.floating("x", x)
        self.check_canvas(x)
        velocity = self._velocity(velocity).to(x.device)
        when = _time(time, x.device)
        leading = x.shape[: x.ndim - self.group.dim]
        many = _broadcast(velocity.shape[:-1], when.shape)
        if (
            many is None
            or len(many) > len(leading)
            or _broadcast(many, leading[: len(many)]) is None
        ):
            raise ValueError(
                "`velocity` and `time` must index leading axes of x, got shapes "
                f"{tuple(velocity.shape)} and {tuple(when.shape)} for x {tuple(x.shape)}."
            )
        element = self.exp(velocity, when)
        if features and self.group.order > 1:
            self.check_features(element.reshape(-1, element.shape[-1]).tolist())
        return self.group.act(x, element, features=features)

    def act_sequence(
        self, x: Tensor, velocity: Velocity, *, start: int | Tensor = 0, features: bool = False
    ) -> Tensor:
        """(ψ(ν)·f)_t = ψ_t(ν)·f_t along axis 1, which begins at time `start`.

        Shapes: x [B, T, ..., *X], velocity [d] or [B, d].
        """
        _check.floating("x", x)
        self.check_canvas(x)
        if x.ndim < 2 + self.group.dim:
            raise ValueError(
                f"`x` must be a sequence, [B, T, ..., *X], for {self!r}, got shape "
                f"{tuple(x.shape)}. `act` moves one signal."
            )
        time = torch.arange(x.shape[1], device=x.device) + start
        velocity = self._velocity(velocity)
        velocity = velocity[:, None] if velocity.ndim > 1 else velocity[None, None]
        return self.act(x, velocity, time[None], features=features)

    def transport(
        self, h: Tensor, time: int | float | Tensor = 1, *, features: bool = True
    ) -> Tensor:
        """ψ_t(ν) on slice ν of a lifted tensor, all ν at once.

        Shapes: h [..., V, K, *X]; time scalar, or broadcasting to the axes before V. The channels
        are features of the group unless `features` is off; on Zⁿ the two are the same.
        """
        self.check_canvas(h)
        lead = h.ndim - self.group.dim - 1
        if lead < 1 or h.shape[lead - 1] not in (1, len(self)):
            raise ValueError(
                f"`h` must be lifted, [..., V, K, *X] with V = {len(self)} for {self!r}, "
                f"got shape {tuple(h.shape)}."
            )
        if features and self.group.order > 1:
            self.check_features(self._velocities)
        when = _time(time, h.device)
        if when.ndim >= lead or _broadcast(when.shape, h.shape[: lead - 1]) is None:
            raise ValueError(
                f"`time` must index the axes before V, {tuple(h.shape[: lead - 1])}, "
                f"got shape {tuple(when.shape)}."
            )
        element = self.exp(self.table(h.device), when[..., None])
        if features and self.group.order > 1 and when.is_floating_point():
            self.check_features(element.reshape(-1, element.shape[-1]).tolist())
        element = element.reshape(*(1,) * (lead + 1 - element.ndim), *element.shape)
        return self.group.act(h, element, features=features)

    def relative(self, velocity: Velocity) -> Tensor:
        """The index of ν − ν̂ in V for every ν of V, −1 where it leaves V: [V].

        Under the flow ν̂ of its input, slice ν of a lifted state shows what slice ν − ν̂ showed.
        """
        value = self._velocity(velocity)
        if value.ndim != 1:
            raise ValueError(
                f"`velocity` must be one velocity, got {len(value)} in shape {tuple(value.shape)}."
            )
        shift = value.tolist()
        lost = torch.finfo(value.dtype).eps if value.is_floating_point() else 0.0
        near = max(1e-9, lost * max(map(abs, shift)))  # what the dtype of ν̂ does not tell apart
        moved = [self.subtract(v, shift) for v in self._velocities]
        return torch.tensor(self._places(moved, near), device="cpu")

    def _places(self, velocities: Sequence[tuple[float, ...]], near: float) -> list[int]:
        """Where V has each velocity, or one so near to it, −1 where it has none."""
        place = {velocity: index for index, velocity in enumerate(self._velocities)}
        return [place.get(velocity, -1) for velocity in velocities]

    def _velocity(self, velocity: Velocity) -> Tensor:
        """`velocity` as a checked tensor [..., d]."""
        value = velocity if isinstance(velocity, Tensor) else _tensor(velocity)
        size = len(self._velocities[0])
        if value.ndim == 0 and size == 1:
            value = value[None]
        _check.components("velocity", value, size, self)
        self.check_velocity(value)
        return value


def _tensor(values: object) -> Tensor:
    """Numbers as a tensor of int64 or float64, whatever torch's default is."""
    tensor = torch.as_tensor(np.asarray(values), device="cpu")
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.long()


def _time(time: int | float | Tensor, device: torch.device) -> Tensor:
    """`time` as a tensor; only where it is not whole can it fail to be finite."""
    if isinstance(time, int):  # written by the device itself: a copy would wait for it
        return torch.full((), time, device=device)
    dtype = torch.float64 if isinstance(time, float) else None  # whatever torch's default is
    when = torch.as_tensor(time, dtype=dtype, device=device)
    if when.is_floating_point() and not bool(when.isfinite().all()):
        raise ValueError(f"`time` must be finite, got {when.tolist()}.")
    return when


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The common shape of several, None where there is none."""
    try:
        return tuple(torch.broadcast_shapes(*map(tuple, shapes)))
    except RuntimeError:
        return None


def _round(velocity: Sequence[float]) -> tuple[float, ...]:
    """A velocity as a key that rounding errors do not tell apart."""
    return tuple(round(component, 9) + 0.0 for component in velocity)


def plain(value: Any) -> Any:
    """Lists and numbers of Python where an array or a tensor holds them."""
    return value.tolist() if hasattr(value, "tolist") else value


def rows(name: str, velocities: Any) -> list[tuple[float, ...]]:
    """A list of velocities as tuples of finite numbers; a bare number is a tuple of one."""
    listed = plain(velocities)
    if not isinstance(listed, Iterable):
        raise ValueError(f"`{name}` must be a list, got {velocities!r}. Write [{velocities!r}].")
    found = [
        tuple(map(plain, row)) if isinstance(row, Iterable) else (row,)
        for row in map(plain, listed)
    ]
    _check.finite(name, found)
    return found


def few(name: str, count: int) -> None:
    """Raise where V would have more velocities than anybody means, before they are listed."""
    if count > MOST:
        raise ValueError(
            f"`{name}` must make at most {MOST:,} velocities, got {count:,}. A state has a slice "
            "for each of them."
        )


def distinct(name: str, velocities: Sequence[tuple[float, ...]]) -> None:
    """Raise where V is empty or a velocity stands twice."""
    if not velocities:
        raise ValueError(f"`{name}` must not be empty: give at least the zero velocity.")
    seen: set[tuple[float, ...]] = set()
    for velocity in velocities:
        if (rounded := _round(velocity)) in seen:
            raise ValueError(f"`{name}` must be distinct, got {velocity} twice.")
        seen.add(rounded)
