"""Work on a CUDA device, recorded once as a graph and replayed without Python."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def capture(work: Callable[[], T]) -> tuple[Callable[[], None], T]:
    """`work` as a replay, and what it returned: tensors that every replay fills again.

    Nothing runs while it is recorded. The work must have run before, so that what is made once is
    made; it must not wait for the device, and must find its inputs in the same memory every time.
    RuntimeError where it cannot be recorded, with what went wrong first.
    """
    graph = torch.cuda.CUDAGraph()
    # A recording that fails leaves its own stream the current one; the outer context puts it back.
    with torch.cuda.stream(torch.cuda.current_stream()):
        try:
            with torch.cuda.graph(graph):
                result = work()
        except RuntimeError as error:
            first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            raise RuntimeError(str(first).partition("\n")[0]) from None
    return graph.replay, result
