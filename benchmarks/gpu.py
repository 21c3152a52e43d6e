"""Training speed on a GPU against the published formulation, in one run.

    python -m benchmarks.gpu [--out DIRECTORY]

A training step is forward, MSE, backward and Adam: 28×28, 128 channels, 10 frames in and 10 out,
decoder of four convolutions and one. The published form runs in float32 with TF32 convolutions and
under bfloat16 autocast; ours under bfloat16 autocast, launched by Python and replayed as a CUDA
graph. Rates are medians over runs timed with device events. The floor of a row is its arithmetic
over the rate of an 8192³ bfloat16 product measured in the same run. A row has a ratio only where
both forms give one loss on the same weights and batch, in float32 and as timed, and the published
form reaches 90 % of the rate known for it on this device; the reasons stand in the record
otherwise. The record goes to `gpu.json`, and `python -m benchmarks.report` prints it.
"""

import argparse
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.published import PublishedForecaster
from fernn import Forecaster, Translation
from fernn.experiments import records

CANVAS, CHANNELS, FRAMES, HORIZON, LAYERS = 28, 128, 10, 10, 4
ROWS = {
    # name: radius of V, batch of the published form, its known rates (TF32, autocast) on an H200
    "FERNN-V^T_2": (2, 64, (87.0, 144.0)),
    "FERNN-V^T_1": (1, 128, (287.0, None)),
    "G-RNN": (0, 128, (1148.0, None)),
}
BATCH, CHECKED, REACHED = 128, 16, 0.9
SAME = {"float32": 1e-4, "as timed": 2e-2}  # relative difference of the two losses
Step = Callable[[], Tensor]


def flops(radius: int) -> float:
    """The arithmetic of one training sequence; h_1 and W ⋆ h_1 do not depend on ν."""
    pixels, velocities = CANVAS**2, (2 * radius + 1) ** 2
    conv = 2 * 9 * CHANNELS**2 * pixels
    thin = 2 * 9 * CHANNELS * pixels  # a convolution with one channel on one side
    recurrent = 3 * conv * (1 + velocities * (FRAMES + HORIZON - 2))
    decoder = 3 * HORIZON * (LAYERS * conv + thin)
    return float(recurrent + decoder + 2 * (FRAMES + HORIZON) * thin)


def videos(batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sparse random canvases, each moving with a velocity of V^T_2: [B, T, 1, H, W], twice."""
    random = torch.Generator().manual_seed(seed)
    canvas = torch.rand(batch, 1, CANVAS, CANVAS, generator=random)
    canvas = canvas * (torch.rand(canvas.shape, generator=random) < 0.2)
    velocity = torch.randint(-2, 3, (batch, 2), generator=random)
    moved = (
        Translation(radius=2)
        .act(
            canvas[:, None].expand(-1, FRAMES + HORIZON, -1, -1, -1),
            velocity[:, None].expand(-1, FRAMES + HORIZON, -1),
            torch.arange(FRAMES + HORIZON).expand(batch, -1),
        )
        .cuda()
    )
    return moved[:, :FRAMES].contiguous(), moved[:, FRAMES:].contiguous()


def precision(autocast: bool) -> AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if autocast else nullcontext()


def loss_of(model: nn.Module, batch: int, autocast: bool) -> float:
    past, future = videos(batch)
    with torch.no_grad(), precision(autocast):
        return F.mse_loss(model(past, horizon=HORIZON).float(), future).item()


def training_step(model: nn.Module, batch: int, autocast: bool) -> Step:
    past, future = videos(batch)
    adam = torch.optim.Adam(model.parameters(), 1e-4, fused=True, capturable=True)

    def step() -> Tensor:
        adam.zero_grad(set_to_none=True)
        with precision(autocast):
            predicted = model(past, horizon=HORIZON)
        loss = F.mse_loss(predicted.float(), future)
        loss.backward()
        adam.step()
        return loss

    return step


def graphed(step: Step) -> Step:
    """The same step, captured once and replayed without Python."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay() -> Tensor:
        graph.replay()
        return loss

    return replay


def milliseconds(run: Callable[[], object], runs: int, warm: int = 3) -> list[float]:
    for _ in range(warm):
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


def measure(make: Callable[[], Step], batch: int, runs: int) -> dict[str, object]:
    """Sequences a second, the spread of it, and the peak of the memory that tensors take."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step = make()
    times = milliseconds(step, runs)
    loss = step().item()
    if not loss < float("inf"):
        raise RuntimeError(f"the timed training step does not train: its loss is {loss}.")
    return {
        "batch": batch,
        "sequences_per_second": 1e3 * batch / statistics.median(times),
        "fastest_and_slowest_ms": [min(times), max(times)],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "loss_after": loss,
    }


def matmul_rate() -> float:
    """FLOP/s of an 8192³ bfloat16 product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / statistics.median(milliseconds(lambda: a @ b, 20)) * 1e3


def row(name: str, rate: float) -> dict[str, object]:
    radius, batch, known = ROWS[name]
    torch.manual_seed(0)
    model = forecaster(radius)
    published = PublishedForecaster.of(model)
    losses = {}
    for label, autocast in (("float32", False), ("as timed", True)):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=autocast, benchmark=False):
            losses[label] = [loss_of(published, CHECKED, False), loss_of(model, CHECKED, autocast)]

    def timed(form: nn.Module, size: int, autocast: bool, graph: bool, runs: int) -> object:
        def make() -> Step:
            step = training_step(form, size, autocast)
            return graphed(step) if graph else step

        return measure(make, size, runs)

    record: dict[str, object] = {
        "losses": losses,
        "flops_per_sequence": flops(radius),
        "operators": operators(model),  # the backend that really ran
    }
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=True):
        record["published_tf32"] = timed(published, batch, False, False, 8)
        record["published_autocast"] = timed(published, batch, True, False, 8)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        record["ours_python"] = timed(model, BATCH, True, False, 12)
        record["ours_graph"] = timed(model, BATCH, True, True, 12)
    return record | verdict(record, known, rate)


def curves(radius: int = 1, batch: int = 32, steps: int = 60) -> dict[str, list[float]]:
    """Losses of a short training run, published in float32 and ours in bfloat16, for two seeds.

    A step sees fresh videos, the same for every run; a seed draws the weights.
    """
    losses: dict[str, list[float]] = {}
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = forecaster(radius)
        for form, autocast in ((PublishedForecaster.of(model), False), (model, True)):
            adam = torch.optim.Adam(form.parameters(), 1e-3)
            run = []
            for index in range(steps):
                past, future = videos(batch, seed=index)
                with precision(autocast):
                    predicted = form(past, horizon=HORIZON)
                loss = F.mse_loss(predicted.float(), future)
                adam.zero_grad()
                loss.backward()
                adam.step()
                run.append(loss.detach())
            name = "ours, bfloat16" if autocast else "published, float32"
            losses[f"{name}, seed {seed}"] = torch.stack(run).tolist()
    return losses


def forecaster(radius: int) -> Forecaster:
    return Forecaster(
        flow=Translation(radius=radius),
        hidden_channels=CHANNELS,
        decoder_layers=LAYERS,
        readout="published",
        backend="triton",
    ).cuda()


class Operators(TorchDispatchMode):
    """Which of the library's operators ran, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fernn":
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators(model: nn.Module) -> dict[str, int]:
    past, _ = videos(1)
    with torch.no_grad(), precision(True), Operators() as ran:
        model(past, horizon=HORIZON)
    return dict(ran.calls)


def verdict(
    record: dict[str, object], known: tuple[float, float | None], rate: float
) -> dict[str, object]:
    """Ratios, the fraction of the floor, and why there is no ratio where there is none."""
    speed = {
        form: record[form]["sequences_per_second"]
        for form in ("published_tf32", "published_autocast", "ours_python", "ours_graph")
    }
    refusals = [] if record["operators"] else ["the Triton operators did not run"]
    for label, (theirs, mine) in record["losses"].items():
        if not abs(mine - theirs) <= SAME[label] * abs(theirs):
            refusals.append(f"losses differ in {label}: {theirs} and {mine}")
    for form, bar in zip(("published_tf32", "published_autocast"), known, strict=True):
        if bar is not None and speed[form] < REACHED * bar:
            refusals.append(f"{form} reaches {speed[form]:.1f} of {bar} sequences/s")
    floor = rate / record["flops_per_sequence"]
    ours = max(speed["ours_python"], speed["ours_graph"])
    result: dict[str, object] = {
        "floor_sequences_per_second": floor,
        "fraction_of_floor": ours / floor,
        "refusals": refusals,
    }
    if not refusals:
        result["times_published_tf32"] = ours / speed["published_tf32"]
        result["times_published_autocast"] = ours / speed["published_autocast"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--commit", help="what a copy without a .git folder was made from")
    arguments = parser.parse_args()
    start, rate = time.perf_counter(), matmul_rate()
    print(f"8192³ bfloat16 product: {rate / 1e12:.0f} TFLOP/s", flush=True)
    rows = {}
    for name in arguments.rows:
        rows[name] = row(name, rate)
        print(name, rows[name], flush=True)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, benchmark=False):
        training = curves()
    device, environment = torch.cuda.get_device_properties(0), records.environment()
    environment["commit"] = environment["commit"] or arguments.commit
    record = {
        "environment": environment,
        "gpu": device.name,
        "gpu_memory_gib": device.total_memory / 2**30,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "matmul_flops_per_second": rate,
        "rows": rows,
        "training_losses": training,
        "seconds": time.perf_counter() - start,
    }
    records.write(arguments.out / "gpu.json", record)


if __name__ == "__main__":
    main()
