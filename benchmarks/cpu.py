"""FERNN-V^T_2 on the CPU against the published formulation: time and peak memory, side by side.

    python -m benchmarks.cpu [--json FILE]

Forward and backward of the recurrence: 128 channels, 28×28, batch 4, 10 frames, 25 velocities. Each
formulation runs in a process of its own; both compute the same states and gradients, which is
checked first. Runs alternate, and the median counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.published import PublishedForecaster
from fernn import FlowRNN, Translation
from fernn.experiments import records

SETTINGS = {"channels": 128, "canvas": 28, "batch": 4, "frames": 10, "radius": 2, "seed": 0}
FORMULATIONS = ("published", "fernn")
REPEATS = 3


def published(rnn: FlowRNN, video: Tensor) -> Tensor:
    """All states of the published loop, with the weights of `rnn`."""
    form = PublishedForecaster(rnn.flow, len(next(rnn.parameters())), decoder_layers=0)
    form.inner.weight, form.recurrent.weight = rnn.parameters()
    h = video.new_zeros(len(video), len(rnn.flow), form.hidden_channels, *video.shape[3:])
    states = []
    for frame in video.unbind(1):
        h = form.step(h, frame)
        states.append(h)
    return torch.stack(states, 1)


def problem(channels: int, canvas: int, batch: int, frames: int, radius: int, seed: int):
    torch.manual_seed(seed)
    rnn = FlowRNN(1, channels, flow=Translation(radius=radius))
    return rnn, torch.rand(batch, frames, 1, canvas, canvas)


def run(formulation: str, rnn: FlowRNN, video: Tensor) -> Tensor:
    """One forward and backward pass; returns the states, leaves gradients in the weights."""
    rnn.zero_grad()
    if formulation == "fernn":
        states, _ = rnn(video)
    else:
        states = published(rnn, video)
    states.square().mean().backward()
    return states.detach()


def measure(formulation: str) -> dict[str, float]:
    """Seconds of one warm pass and the peak of resident memory above what was there before it."""
    rnn, video = problem(**SETTINGS)
    run(formulation, rnn, video[:1, :2])
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak that VmHWM reports
    begun = time.perf_counter()
    run(formulation, rnn, video)
    return {
        "seconds": time.perf_counter() - begun,
        "peak_gib": (_status("VmHWM") - before) / 2**20,
    }


def same() -> float:
    """The largest difference of states and gradients on a small problem, in float64."""
    rnn, video = problem(**SETTINGS | {"channels": 4, "canvas": 9, "frames": 5})
    rnn, video = rnn.double(), video.double()
    found = []
    for formulation in FORMULATIONS:
        states = run(formulation, rnn, video)
        found.append([states, *(p.grad.clone() for p in rnn.parameters())])
    return max(float((a - b).abs().max()) for a, b in zip(*found, strict=True))


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write a record to this file")
    parser.add_argument("--measure", choices=FORMULATIONS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    difference = same()
    if difference > 1e-12:
        sys.exit(f"The formulations differ by {difference:.1e}; their times mean nothing.")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in FORMULATIONS}
    for repeat in range(REPEATS):
        for name in FORMULATIONS:
            print(f"run {repeat + 1} of {REPEATS}: {name} …", end="\r", flush=True)
            command = [sys.executable, "-m", "benchmarks.cpu", "--measure", name]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            runs[name].append(json.loads(result.stdout))
    medians = {
        name: {key: statistics.median(run[key] for run in found) for key in found[0]}
        for name, found in runs.items()
    }
    print(f"FERNN-V^T_2, forward and backward, {SETTINGS}, {torch.get_num_threads()} threads")
    print(f"{'formulation':<12} {'seconds':>8} {'peak GiB':>9}")
    for name, median in medians.items():
        print(f"{name:<12} {median['seconds']:8.2f} {median['peak_gib']:9.2f}")
    ratio = {key: medians["published"][key] / medians["fernn"][key] for key in medians["fernn"]}
    print(f"{'ratio':<12} {ratio['seconds']:8.2f} {ratio['peak_gib']:9.2f}")
    if arguments.json:
        record = {
            "environment": records.environment(),
            "settings": SETTINGS,
            "difference": difference,
            "runs": runs,
            "median": medians,
            "ratio": ratio,
        }
        records.write(arguments.json, record)


if __name__ == "__main__":
    main()
