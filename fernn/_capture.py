"""Work on a CUDA device, recorded once as a graph and replayed without Python."""

import gc
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
    graph, why = torch.cuda.CUDAGraph(), None
    # A recording that fails leaves its own stream the current one; the outer context puts it back.
    with torch.cuda.stream(torch.cuda.current_stream()):
        try:
            with torch.cuda.graph(graph):
                result = work()
        except RuntimeError as error:
            why = _reason(error)
    if why is not None:  # outside of the handler, whose traceback holds what was recorded
        gc.collect()
        raise RuntimeError(why)
    return graph.replay, result


def _reason(error: BaseException) -> str:
    """What went wrong first, in a line: the end of a failed recording raises once more."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return str(error).partition("\n")[0]
