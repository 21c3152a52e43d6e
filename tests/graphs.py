"""Work that is captured in a CUDA graph, beside the same work launched by Python."""

from collections.abc import Callable

import torch
from torch import Tensor

Work = Callable[[], tuple[Tensor, ...]]


def replayed(work: Work) -> list[tuple[Tensor, Tensor]]:
    """What a replay gives beside what `work` gives; to wait for the device in it is an error."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        want = work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = work()
    graph.replay()
    return list(zip(got, want, strict=True))
