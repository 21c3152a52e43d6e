"""Time everything in one run: `python -m benchmarks.gpu [--out FILE] [--parts NAME …]`.

The floor of a row is its arithmetic over the rate of an 8192³ bfloat16 product measured in the same
run. The record goes to `gpu.json`, and `python -m benchmarks.report` prints it; parts of it that
were timed apart go to files beside it, `gpu-*.json`.
"""

import argparse
import time
import traceback
from pathlib import Path

import torch

from benchmarks.gpu import (
    clips,
    losses,
    mixing,
    parts,
    rotation,
    row,
    streaming,
    timing,
    translation,
    velocities,
)
from benchmarks.report import RECORD
from fernn.experiments import records

ROWS = {**translation.ROWS, **rotation.ROWS, **clips.ROWS, **mixing.ROWS}
SECTIONS = {
    "streaming": streaming.run,
    "velocities": velocities.run,
    "memory": parts.run,
    "training_losses": losses.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kept = "the record to write; benchmarks/results/gpu.json if not given"
    parser.add_argument("--out", type=Path, default=RECORD, help=kept)
    names = [*ROWS, *SECTIONS]
    parser.add_argument(
        "--parts",
        nargs="+",
        default=names,
        choices=names,
        metavar="NAME",
        help=f"what to time, all if not given: {'; '.join(names)}",
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this benchmark times a CUDA device and torch sees none here.")
    start, rate = time.perf_counter(), timing.matmul_rate()
    print(f"8192³ bfloat16 product: {rate / 1e12:.0f} TFLOP/s", flush=True)
    device = torch.cuda.get_device_properties(0)
    rows: dict[str, dict] = {}
    failed: dict[str, str] = {}
    record: dict[str, object] = {
        "environment": records.environment(),
        "gpu": device.name,
        "gpu_memory_gib": device.total_memory / 2**30,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "matmul_flops_per_second": rate,
        "rows": rows,
    }

    def keep(part: dict[str, object]) -> None:
        """What is measured is kept, whatever happens to the rest."""
        print(f"{time.perf_counter() - start:.0f} s: {list(part)}, {list(rows)[-1:]}", flush=True)
        record.update(part, seconds=time.perf_counter() - start)
        records.write(arguments.out, record)

    for name in [name for name in ROWS if name in arguments.parts]:
        try:
            rows[name] = row.run(ROWS[name], rate, rows)
        except (RuntimeError, KeyError) as error:  # a row that fails is told, the others are timed
            failed[name] = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        keep({"rows": rows, "failed": failed})
    for name in [name for name in SECTIONS if name in arguments.parts]:
        keep({name: SECTIONS[name]()})
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
