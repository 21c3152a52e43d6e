"""What a recurrence remembers between frames."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from fernn.flows import Flow

FRAMES = ("lab", "comoving")


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """The lifted state after `time` frames, in the coordinates of `frame`.

    `tensors` are [B, V, K, *X], one a layer or one a part of a cell's state; the last is the
    output. `time` is an int64 scalar on the state's device, so that a step is the same program at
    every time. Lab tensors are h_t(ν), co-moving ones k_t(ν) = ψ_{1−t}(ν)·h_t(ν).
    """

    tensors: tuple[Tensor, ...]
    time: Tensor
    frame: str
    flow: Flow
    features: bool

    def __repr__(self) -> str:
        """What it is of, without its numbers."""
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in self.tensors)
        time = "?" if self.time.is_meta else int(self.time)
        about = f"time={time}, frame={self.frame!r}, flow={self.flow!r}"
        return f"State({about}, tensors: {shapes})"

    def detach(self) -> "State":
        """The same state, cut off from the graph that made it."""
        return replace(self, tensors=tuple(tensor.detach() for tensor in self.tensors))

    def to(self, *args: Any, **kwargs: Any) -> "State":
        """The same state on another device or in another precision, where it is not of integers."""

        def moved(tensor: Tensor) -> Tensor:
            made = tensor.to(*args, **kwargs)
            return made if tensor.is_floating_point() else tensor.to(made.device)

        return replace(self, tensors=tuple(map(moved, self.tensors)), time=moved(self.time))

    def lab(self, ahead: int = 0) -> Tensor:
        """The output h_t(ν) in lab coordinates; `ahead` carries it on by its flow: ψ_ahead·h_t."""
        h = self.tensors[-1]
        if self.frame == "comoving":
            return self.flow.transport(h, self.time + (ahead - 1), features=self.features)
        return self.flow.transport(h, ahead, features=self.features) if ahead else h
