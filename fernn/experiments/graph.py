"""The same work on every micro-batch, launched once: small models are bound by the CPU otherwise.

A forward and a backward pass of a G-RNN are more than a thousand kernels of a few microseconds
each, and Python launches them at a quarter of the rate that a GPU runs them at. Recorded as a CUDA
graph they are one launch.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from fernn._capture import capture
from fernn.data import Batch

Work = Callable[[Batch, float], Tensor]
_WARM = 3  # calls that choose kernels and fill caches before one is recorded


class Graphed:
    """`work` on a micro-batch and its share of a batch: a CUDA graph from the fourth call on.

    The graph is that of the first shape and share which come often; others, such as the rest of a
    batch that its micro-batches do not divide, run as they are. Gradients are added to buffers that
    stay where they are, so micro-batches add up as ever; `zero` takes the place of the optimiser's.
    What is recorded is what runs otherwise: results differ by rounding at most. Where it cannot be
    recorded, `say` is told and everything runs as it is.
    """

    def __init__(
        self,
        work: Work,
        parameters: Iterable[nn.Parameter],
        say: Callable[[str], None],
        *,
        enabled: bool,
    ) -> None:
        self._work, self._parameters, self._say = work, [*parameters], say
        self._enabled, self._seen = enabled, Counter[object]()
        self._replay: Callable[[], None] | None = None
        self._inputs: Batch | None = None
        self._result: Tensor | None = None
        self._gradients: list[tuple[nn.Parameter, Tensor]] = []
        self._key: object = None

    def __call__(self, part: Batch, share: float) -> Tensor:
        key = (share, *(tensor.shape for tensor in part))
        if self._replay is not None and key == self._key:
            assert self._inputs is not None
            assert self._result is not None
            for buffer, tensor in zip(self._inputs, part, strict=True):
                buffer.copy_(tensor)
            self._replay()
            return self._result
        result = self._work(part, share)
        if self._enabled and self._replay is None:
            self._seen[key] += 1
            if self._seen[key] == _WARM:
                self._record(key, part, share)
        return result

    def zero(self) -> None:
        """No gradient yet, in the buffers of the graph where there is one."""
        if self._replay is None:
            for parameter in self._parameters:
                parameter.grad = None
            return
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        torch._foreach_zero_([gradient for _, gradient in self._gradients])

    @property
    def recorded(self) -> bool:
        return self._replay is not None

    def release(self) -> None:
        """Give the memory of the graph back, and record none again."""
        self._replay = self._result = self._inputs = None
        self._gradients, self._enabled = [], False

    def _record(self, key: object, part: Batch, share: float) -> None:
        # The call before this one left a gradient wherever there is one: those are the buffers.
        gradients = [(p, p.grad) for p in self._parameters if p.grad is not None]
        inputs = Batch(*(tensor.clone() for tensor in part))
        try:
            self._replay, self._result = capture(
                lambda: self._work(inputs, share), inputs.frames.device
            )
        except RuntimeError as error:
            self._enabled = False
            self._say(f"no CUDA graph of a training step, Python launches it: {error}")
            return
        self._key, self._inputs, self._gradients = key, inputs, gradients
