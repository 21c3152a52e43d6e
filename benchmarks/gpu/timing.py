"""Clocks: device events around a step, the step as a CUDA graph, the rate of a plain product."""

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from fernn._capture import capture

Step = Callable[[], Tensor]
KERNELS, NAME = 12, 100
"""How many kernels of a step are recorded, and how much of their names."""


def precision(autocast: bool, device: str = "cuda") -> AbstractContextManager[object]:
    return torch.autocast(device, torch.bfloat16) if autocast else nullcontext()


def graphed(step: Step) -> Step:
    """The same step, captured once and replayed without Python."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    replay, loss = capture(step, torch.device("cuda", torch.cuda.current_device()))

    def again() -> Tensor:
        replay()
        return loss

    return again


def milliseconds(run: Callable[[], object], runs: int) -> list[float]:
    """The time of each of `runs` runs, after three that are not counted, or two where two are."""
    for _ in range(min(3, runs)):
        run()
    times = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times


def latency(run: Callable[[], object], runs: int, warm: int = 20) -> dict[str, float]:
    """Microseconds from the call until the device is done, as somebody who waits for it sees it."""
    times = []
    for index in range(warm + runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if index >= warm:
            times.append(1e6 * (time.perf_counter() - start))
    tenths = statistics.quantiles(times, n=10)
    return {"median_us": statistics.median(times), "tenth_us": tenths[0], "ninetieth_us": tenths[8]}


def measure(make: Callable[[], Step], batch: int, runs: int) -> dict[str, object]:
    """Sequences a second, the spread of it, and the peak of the memory that tensors take."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = make()
    losses: list[Tensor] = []
    times = milliseconds(lambda: losses.append(step()), runs)
    loss = losses[-1].item()
    if not loss < float("inf"):
        raise RuntimeError(f"the timed training step does not train: its loss is {loss}.")
    return {
        "batch": batch,
        "sequences_per_second": 1e3 * batch / statistics.median(times),
        "fastest_and_slowest_ms": [min(times), max(times)],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "loss_after": loss,
    }


def launched(step: Step, activity: ProfilerActivity = ProfilerActivity.CUDA) -> dict[str, float]:
    """The kernels of one step that take longest, and milliseconds of each: what really runs."""
    with profile(activities=[activity]) as seen:
        step()
        if activity is ProfilerActivity.CUDA:
            torch.cuda.synchronize()
    on_device = activity is ProfilerActivity.CUDA
    spent = {
        event.key[:NAME]: (event.self_device_time_total if on_device else event.self_cpu_time_total)
        / 1e3
        for event in seen.key_averages()
    }
    longest = sorted(spent, key=lambda name: spent[name], reverse=True)
    return {name: spent[name] for name in longest[:KERNELS] if spent[name] > 0}


def matmul_rate() -> float:
    """FLOP/s of an 8192³ bfloat16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / statistics.median(milliseconds(lambda: a @ b, 20)) * 1e3
