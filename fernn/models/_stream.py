"""A model on a stream: one frame in, one answer out, at once."""

import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fernn import _check
from fernn._capture import capture
from fernn.models._canvas import check_wraps
from fernn.models._forecaster import Forecaster
from fernn.models._streamed import Fused, Plain, Streamed, program, recurrence
from fernn.models._wrapped import unwrapped
from fernn.nn import FlowRNN, State

_BY_ITSELF = (
    " FlowEquivariant around a Cell streams by itself: state = model.step(frame, state); "
    "inside a SequenceForecaster, state = model.sequence.step(frame, state)."
)


class Stream:
    """Shows a model one frame [B, C, *X] at a time; an answer is that to all frames so far.

    A `Forecaster` answers with its forecast of the next frame, `model(video, horizon=1)[:, 0]`, a
    `FlowRNN` with its state in lab coordinates, `rnn(video)[0][:, -1]`. Nothing is differentiated.

    On a CUDA device a frame is one launch of a recorded graph: the first one takes seconds and the
    others microseconds. The first frame fixes shape, dtype, autocast and weights; make another
    stream after a change of any.

    `state` is a copy of what the stream remembers, None before its first frame ever. Setting it
    goes on from there: from where a stream was, or from `model.rnn.observe(video)`.

    >>> from fernn.flows import Translation
    >>> model = Forecaster(flow=Translation(radius=1), hidden_channels=8)
    >>> video, stream = torch.rand(2, 5, 1, 12, 12), Stream(model)
    >>> answers = [stream(frame) for frame in video.unbind(1)]
    >>> torch.allclose(answers[-1], model(video, horizon=1)[:, 0])
    True

    Several frames ahead it feeds its answers back (the transported readout); the state that was
    kept takes it back to the video:

    >>> kept, ahead = stream.state, answers[-1:]
    >>> for _ in range(2):
    ...     ahead.append(stream(ahead[-1]))
    >>> stream.state = kept
    >>> torch.allclose(torch.stack(ahead, 1), model(video, horizon=3), atol=1e-6)
    True
    """

    def __init__(self, model: Streamed) -> None:
        if not isinstance(model, Forecaster | FlowRNN):
            raise TypeError(
                f"`model` must be a Forecaster or a FlowRNN, got {type(model).__name__}."
                + (unwrapped("model", model, (Forecaster, FlowRNN)) or _BY_ITSELF)
            )
        self.model = model
        self._program: Plain | Fused | None = None
        self._runs: list[Callable[[], Tensor]] = []
        self._given: State | None = None
        self._turn = 0

    def __call__(self, frame: Tensor) -> Tensor:
        _check.floating("frame", frame)
        with torch.no_grad():
            made = self._program or self._begin(frame)
            held = made.frame
            if (frame.shape, frame.dtype, frame.device) != (held.shape, held.dtype, held.device):
                raise ValueError(
                    f"`frame` must be like the first one, {held.dtype} {tuple(held.shape)} on "
                    f'"{held.device}", got {frame.dtype} {tuple(frame.shape)} on '
                    f'"{frame.device}". Make another Stream for other frames.'
                )
            held.copy_(frame)
            answer = self._runs[self._turn]().clone()
            self._turn = (self._turn + 1) % made.turns
            return answer

    @property
    def state(self) -> State | None:
        return self._given if self._program is None else self._program.state(self._turn)

    @state.setter
    def state(self, state: State | None) -> None:
        if self._program is None:
            self._given = state
            return
        with torch.no_grad():
            self._program.load(state)
        self._turn = 0

    def reset(self) -> None:
        """Forget every frame."""
        self.state = None

    def _begin(self, frame: Tensor) -> Plain | Fused:
        recurrence(self.model)._check_input("frame", frame, sequence=False)
        if isinstance(self.model, Forecaster):
            check_wraps("frame", frame, self.model.decoder)
        if any(isinstance(m, _BatchNorm) and m.training for m in self.model.modules()):
            raise ValueError(
                "`model` must be in eval mode, got one whose batch-norm trains: it would take its "
                "statistics from single frames, and change them. Call model.eval() first."
            )
        with torch.inference_mode(False):  # what is held outlives the mode of the first frame
            made = program(self.model, frame)
            runs = [partial(made.run, turn) for turn in range(made.turns)]
            self._runs = (
                [_recorded(run, frame.device) for run in runs] if frame.is_cuda else [*runs]
            )
            made.load(self._given)
        self._program, self._given = made, None
        return made


def _recorded(run: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    run()
    try:
        replay, answer = capture(run, device)
    except RuntimeError as error:
        warnings.warn(f"no CUDA graph of this stream, Python launches it: {error}", stacklevel=4)
        return run

    def again() -> Tensor:
        replay()
        return answer

    return again
