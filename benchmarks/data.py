"""How many sequences a second the datasets make: on one CPU core, and on a GPU where there is one.

python benchmarks/data.py --json benchmarks/results/data-DATE-MACHINE.json
"""

import argparse
import statistics
import time

import torch

from fernn.data import BouncingMNIST, ClipArchive, FlowingMNIST, MovingClips, Videos
from fernn.experiments import records
from fernn.flows import Rotation, Translation

# Sequences a second that training must never wait for, where a bound is promised.
PROMISED = {("Translating MNIST", "cpu"): 1_000, ("Translating MNIST", "cuda"): 20_000}


def noise(clips: int = 256, length: int = 100) -> ClipArchive:
    """An archive of the shape of KTH's; what the pictures show does not matter here."""
    generator = torch.Generator().manual_seed(0)
    size = (clips * length, 32, 32)
    return ClipArchive(
        name="noise",
        classes=("noise",),
        frames=torch.randint(0, 256, size, dtype=torch.uint8, generator=generator),
        length=torch.full((clips,), length),
        label=torch.zeros(clips, dtype=torch.int64),
        subject=torch.zeros(clips, dtype=torch.int64),
        start=torch.zeros(clips, dtype=torch.int64),
        clip=("noise",) * clips,
        split=("train",) * clips,
    )


def datasets(device: str, root: str | None) -> dict[str, Videos]:
    """One of each kind, with the velocities that the experiments use."""
    flow = Translation(radius=2)
    return {
        "Translating MNIST": FlowingMNIST(flow, "train", root=root, device=device),
        "Rotating MNIST": FlowingMNIST(Rotation(count=4), "train", root=root, device=device),
        "Bouncing MNIST": BouncingMNIST(flow, "train", root=root, device=device),
        "Moving clips": MovingClips(noise(), flow, "train", device=device),
    }


def rate(data: Videos, batch_size: int, seconds: float) -> tuple[float, float]:
    """Sequences a second: the median over batches, and the slowest tenth."""
    indices = torch.arange(batch_size) % len(data)

    def once(epoch: int) -> float:
        began = time.perf_counter()
        data.batch(indices, epoch)
        if data.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    for epoch in range(2):
        once(epoch)
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        times.append(once(len(times)))
    slow = sorted(times)[int(0.9 * len(times))]
    return batch_size / statistics.median(times), batch_size / slow


def measure(name: str, data: Videos, batch_size: int, seconds: float) -> dict[str, object]:
    """One row of the table, printed and returned."""
    median, slow = rate(data, batch_size, seconds)
    frames = list(data[0].frames.shape)
    shape = "×".join(str(n) for n in frames)
    print(
        f"{name:18} {data.device.type:6} {batch_size:5} {shape:>12} {median:12,.0f} {slow:14,.0f}"
    )
    return {
        "name": name,
        "dataset": repr(data),
        "device": data.device.type,
        "batch": batch_size,
        "frames": frames,
        "sequences_per_second": round(median, 1),
        "sequences_per_second_of_the_slowest_tenth": round(slow, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Sequences a second of every dataset.")
    parser.add_argument("--json", metavar="FILE", help="write a record of the run here")
    parser.add_argument("--data", metavar="FOLDER", help="the four MNIST files; else embedded ones")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each measurement")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 128, 512], help="batch sizes")
    options = parser.parse_args()

    torch.set_num_threads(1)
    print("dataset            device batch       frames  sequences/s  slowest tenth")
    results, missed = [], []
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        for name, data in datasets(device, options.data).items():
            rows = [measure(name, data, size, options.seconds) for size in options.batch]
            results += rows
            best = max(float(str(row["sequences_per_second"])) for row in rows)
            promised = PROMISED.get((name, device), 0)
            if best < promised:
                missed.append(f"{name} on {device}: {best:,.0f}/s, promised {promised:,}/s.")
    if options.json:
        record: dict[str, object] = {
            "benchmark": "data",
            "environment": records.environment(),
            "results": results,
        }
        records.write(options.json, record)
    if missed:
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
