"""One frame of a stream: a program that keeps its state in place, so that a CUDA graph can hold it.

`Plain` is any recurrence and any forecaster; `Fused` is those that the kernels for one frame take.
Both read `frame`, advance the state they hold and return what the stream answers.
"""

from typing import cast

import torch
from torch import Tensor, nn

from fernn.models._forecaster import Forecaster
from fernn.models._plain import decodes_plainly
from fernn.nn import FlowRNN, State
from fernn.ops._backend import low_dtype
from fernn.ops.flow_step import choose

Streamed = Forecaster | FlowRNN
_CHANNELS = 16  # a matrix unit multiplies this many at least


class Plain:
    """As the model steps by itself; h_0 = 0 is a state like any other."""

    turns = 1

    def __init__(self, model: Streamed, frame: Tensor) -> None:
        self.model, self.rnn = model, recurrence(model)
        self.kernels = self.rnn.kernels()
        self.frame = frame.clone()
        first = self.rnn.step(frame, None, self.kernels)
        self.held = [
            torch.zeros_like(h, memory_format=torch.contiguous_format) for h in first.tensors
        ]
        self.time = torch.zeros_like(first.time)

    def run(self, turn: int) -> Tensor:
        state = self.rnn.step(self.frame, self._state(), self.kernels)
        answer = self._answer(state)
        for held, new in zip(self.held, state.tensors, strict=True):
            held.copy_(new)
        self.time.copy_(state.time)
        return answer

    def _answer(self, state: State) -> Tensor:
        model = self.model
        if isinstance(model, FlowRNN):
            return state.lab()
        ahead = 1
        if model.readout == "published":
            state, ahead = self.rnn.step(self.frame, state, self.kernels), 0
        return cast(Tensor, model.decoder(model.pool(state.lab(ahead))))

    def _state(self) -> State:
        return self.rnn._state(tuple(self.held), self.time)

    def state(self, turn: int) -> State:
        return self.rnn._state(tuple(h.clone() for h in self.held), self.time.clone())

    def load(self, state: State | None) -> None:
        """Go on from a state, or from none."""
        if state is None:
            for held in (*self.held, self.time):
                held.zero_()
            return
        state = _checked(self.rnn, state, self.frame)
        for held, given in zip((*self.held, self.time), (*state.tensors, state.time), strict=True):
            held.copy_(given)


class Fused:
    """In the kernels for one frame: the state is haloed, in one of two buffers in turn."""

    turns = 2

    def __init__(self, model: Streamed, frame: Tensor) -> None:
        from fernn.ops import one_frame
        from fernn.ops._launch import reduce_shift

        self.model, self.rnn, self._pool = model, recurrence(model), one_frame.pool
        inner, kernel = cast(tuple[Tensor, Tensor], self.rnn.kernels()[0])
        dtype = low_dtype(frame)
        self.frame = frame.clone(memory_format=torch.contiguous_format)
        batch, (height, width) = len(frame), frame.shape[-2:]
        self.shift = reduce_shift(self.rnn._shift.on(frame.device), (height, width))
        self.time = torch.zeros((), dtype=torch.long, device=frame.device)
        self.radius, pixels = kernel.shape[-1] // 2, height * width
        haloed = (height + 2 * self.radius, width + 2 * self.radius, len(kernel))

        def buffer(*leading: int) -> Tensor:
            return torch.zeros(*leading, *haloed, device=frame.device, dtype=dtype)

        velocities = len(self.shift)
        self.halos = [buffer(batch, velocities) for _ in range(2)]
        self.step = one_frame.Convolution(kernel, dtype, batch * velocities, pixels, inner=inner)
        if isinstance(model, FlowRNN):
            return
        self.further = buffer(batch, velocities) if model.readout == "published" else None
        convs = [conv for conv in model.decoder if isinstance(conv, nn.Conv2d)]
        self.layers = [
            one_frame.Convolution(
                conv.weight, dtype, batch, pixels, bias=conv.bias, last=conv is convs[-1]
            )
            for conv in convs
        ]
        self.images = [buffer(batch) for _ in convs]
        self.out = torch.empty_like(self.frame, dtype=dtype)

    def run(self, turn: int) -> Tensor:
        new = self.halos[1 - turn]
        self.step(self.halos[turn], new, self.frame, self.shift)
        self.time.add_(1)
        model = self.model
        if isinstance(model, FlowRNN):
            return self._inside(new)
        ahead = 1
        if self.further is not None:
            self.step(new, self.further, self.frame, self.shift)
            new, ahead = self.further, 0
        self._pool(new, self.shift, self.images[0], self.radius, ahead)
        for layer, x, out in zip(
            self.layers, self.images, [*self.images[1:], self.out], strict=True
        ):
            layer(x, out, self.frame, self.shift)
        return self.out

    def _inside(self, halo: Tensor) -> Tensor:
        r = self.radius
        return halo[:, :, r : halo.shape[2] - r, r : halo.shape[3] - r].permute(0, 1, 4, 2, 3)

    def state(self, turn: int) -> State:
        return self.rnn._state((self._inside(self.halos[turn]).clone(),), self.time.clone())

    def load(self, state: State | None) -> None:
        """Go on from a state, or from none; the first turn comes next."""
        if state is None:
            self.halos[0].zero_()
            self.time.zero_()
            return
        h, r = _checked(self.rnn, state, self.frame).tensors[0], self.radius
        padded = nn.functional.pad(h.flatten(0, 1), (r, r, r, r), mode="circular")
        self.halos[0].copy_(padded.reshape(*h.shape[:3], *padded.shape[2:]).permute(0, 1, 3, 4, 2))
        self.time.copy_(state.time)


def program(model: Streamed, frame: Tensor) -> Plain | Fused:
    """The program for frames like this one."""
    return (Fused if fits(model, frame) else Plain)(model, frame)


def fits(model: Streamed, frame: Tensor) -> bool:
    """Whether `Fused` computes the model: a plain recurrence on a torus, where Triton runs."""
    rnn = recurrence(model)
    if not rnn._stepwise or rnn.frame != "lab" or len(rnn.layers) > 1 or frame.ndim != 4:
        return False
    if rnn.activation != "relu" or rnn.in_channels > _CHANNELS:
        return False
    if isinstance(model, Forecaster) and not decodes_plainly(model):
        return False
    inner, kernel = rnn.kernels()[0]
    if inner is None or kernel.shape[1] % _CHANNELS:  # an encoder in the place of U
        return False
    return choose(rnn.backend, frame[:, None], kernel, rnn._shift.on(frame.device)) == "triton"


def _checked(rnn: FlowRNN, state: State, frame: Tensor) -> State:
    """A state that fits the recurrence and its frames, wherever it was kept."""
    if isinstance(state, State):
        state = state.to(next(rnn.parameters()))
    rnn._check_state(state, frame[:, None])
    return state


def recurrence(model: Streamed) -> FlowRNN:
    return model if isinstance(model, FlowRNN) else model.rnn
