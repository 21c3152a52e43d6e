"""The GPU record as Markdown tables: `python -m benchmarks.report [FILE]`."""

import argparse
import json
from pathlib import Path

_RECORD = Path(__file__).parent / "results" / "gpu.json"


def table(record: dict) -> str:
    """One row a model: both published forms, ours, the ratios and the fraction of the floor."""
    head = [
        "Training step",
        "Published, TF32",
        "Published, autocast",
        "Ours",
        "× TF32",
        "× autocast",
    ]
    head += ["of the floor", "peak memory"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, row in record["rows"].items():
        ours = max(row["ours_python"], row["ours_graph"], key=_rate)
        lines.append(
            _line(
                [
                    name,
                    _speed(row["published_tf32"]),
                    _speed(row["published_autocast"]),
                    _speed(ours),
                    _ratio(row, "times_published_tf32"),
                    _ratio(row, "times_published_autocast"),
                    f"{row['fraction_of_floor']:.0%}",
                    f"{ours['peak_gib']:.1f} GiB",
                ]
            )
        )
    environment = record["environment"]
    commit = (environment["commit"] or "unknown")[:12] + ("+" if environment["dirty"] else "")
    lines += [
        "",
        f"Sequences per second (batch). {record['gpu']}, {environment['date'][:10]}, torch "
        f"{environment['torch']}, cuDNN {record['cudnn']}, commit {commit}; bfloat16 8192³ product "
        f"{record['matmul_flops_per_second'] / 1e12:.0f} TFLOP/s.",
    ]
    for name, row in record["rows"].items():
        if row.get("rival"):  # another model for the same task: sequences, not one function
            lines.append(f"{name} is another model than the published form it is compared with.")
        lines += [f"No ratio for {name}: {reason}." for reason in row["refusals"]]
    if "training_losses" in record:  # records of old have none
        lines.append(training(record))
    return "\n".join(lines)


def training(record: dict) -> str:
    """How near the losses of both forms end, beside how near two seeds of one form do."""
    curves = record["training_losses"]
    ends = {tuple(name.rsplit(", ", 1)): losses[-1] for name, losses in curves.items()}
    seeds, forms = (list(dict.fromkeys(key[i] for key in ends)) for i in (1, 0))
    published, ours = forms
    gap = max(abs(ends[ours, s] / ends[published, s] - 1) for s in seeds)
    of_seeds = [ends[published, s] for s in seeds]
    steps = len(next(iter(curves.values())))
    return (
        f"After {steps} steps of training FERNN-V^T_1 the losses of both forms ({ours}; "
        f"{published}) differ by {gap:.2%} at most from the same weights; "
        f"two draws of the weights differ by {max(of_seeds) / min(of_seeds) - 1:.2%}."
    )


# What was aimed at: × TF32, × autocast, the fraction of the floor, GiB.
GOALS = {
    "FERNN-V^T_2": (20, 12, 0.78, 17),
    "FERNN-V^T_1": (14, None, None, None),
    "G-RNN": (7, None, None, None),
    "FERNN-V^R_4, SE(2)": (2.5, None, None, None),
    "FERNN-V^R_4, co-moving": (180, None, None, None),
    "Clips, FERNN-V^T_2": (12, None, None, None),
    "FERNN-V^T_2, V-mixing": (None, None, 0.6, None),
}


def goals(record: dict) -> str:
    """What was reached beside what was aimed at."""
    head = ["Training step", "× TF32 (goal)", "× autocast (goal)", "of the floor (goal)"]
    lines = [_line([*head, "memory (goal)"]), _line(["---"] * 5)]
    for name, (tf32, autocast, floor, memory) in GOALS.items():
        row = record["rows"][name]
        ours = max(row["ours_python"], row["ours_graph"], key=_rate)
        cells = [
            _ratio(row, "times_published_tf32") + _goal(tf32, "{:g}"),
            _ratio(row, "times_published_autocast") + _goal(autocast, "{:g}"),
            f"{row['fraction_of_floor']:.0%}" + _goal(floor, "{:.0%}"),
            f"{ours['peak_gib']:.1f} GiB" + _goal(memory, "{:g}"),
        ]
        lines.append(_line([name, *cells]))
    return "\n".join(lines)


def _goal(value: float | None, form: str) -> str:
    return "" if value is None else f" ({form.format(value)})"


def streaming(record: dict) -> str:
    """One frame at batch 1: from the call until the forecast is there."""
    head = ["One frame, batch 1", "Published, TF32", "Published, autocast", "Ours"]
    lines = [_line([*head, "× TF32", "× autocast"]), _line(["---"] * 6)]
    measured = record["streaming"]
    for suffix, name in (("", "a step, read out"), ("_two_steps", "two steps, as published")):
        forms = ("published_tf32", "published_autocast", "ours")
        times = [f"{measured[form + suffix]['median_us']:,.0f} µs" for form in forms]
        ratios = [_ratio(measured, f"times_{form}{suffix}") for form in forms[:2]]
        lines.append(_line([name, *times, *ratios]))
    lines += [f"No ratio: {reason}." for reason in measured["refusals"]]
    return "\n".join(lines)


def _rate(form: dict) -> float:
    return form["sequences_per_second"]


def _speed(form: dict) -> str:
    rate = _rate(form)
    return f"{rate:,.{int(rate < 100)}f} ({form['batch']})"


def _ratio(row: dict, key: str) -> str:
    return f"{row[key]:.1f}" if key in row else "refused"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", nargs="?", type=Path, default=_RECORD)
    record = json.loads(parser.parse_args().record.read_text(encoding="utf-8"))
    print(table(record))
    if "streaming" in record:  # records of old have none
        print("\n" + streaming(record))


if __name__ == "__main__":
    main()
