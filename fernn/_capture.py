"""Work on a CUDA device, recorded once as a graph and replayed without Python."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


def capture(work: Callable[[], T], device: torch.device) -> tuple[Callable[[], None], T]:
    """`work` on a device as a replay, and what it returned: tensors that every replay fills again.

    Nothing runs while it is recorded. The work must have run before, so that what is made once is
    made; it must not wait for the device, and must find its inputs in the same memory every time.
    RuntimeError where it cannot be recorded, with what went wrong first.
    """
    graph, why = torch.cuda.CUDAGraph(), None
    # A recording that fails leaves its own stream the current one; the outer context puts it back.
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        try:
            with torch.cuda.graph(graph, stream=_stream(device)), _autocast_without_cache():
                result = work()
        except RuntimeError as error:
            why = _reason(error)
    if why is not None:  # outside of the handler, whose traceback holds what was recorded
        gc.collect()
        raise RuntimeError(why)
    return graph.replay, result


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Where work of a device is recorded: torch's own is that of the device which came first."""
    return torch.cuda.Stream(device)


def _autocast_without_cache() -> AbstractContextManager[object]:
    """The caller's autocast, but for copies of weights that it would free before a replay."""
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.get_autocast_dtype("cuda"), cache_enabled=False)


def _reason(error: BaseException) -> str:
    """What went wrong first, in a line: the end of a failed recording raises once more."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return str(error).partition("\n")[0]
