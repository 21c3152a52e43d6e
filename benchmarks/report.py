"""The GPU record as Markdown tables: `python -m benchmarks.report [FILE]`.

What a run lacks, since it was cut or timed apart, is of the newest record that has it, and the text
says so; a ratio is always one of two forms in one run.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean

from benchmarks import markdown

RECORD = Path(__file__).parent / "results" / "gpu.json"
TAIL = 20
"""Steps at the end of a training whose losses are averaged: those of single batches scatter."""
_SECTIONS = {
    "training_losses": "the losses of training",
    "streaming": "one frame at a time",
    "memory": "a batch in parts",
}


def load(path: Path = RECORD) -> dict:
    """A record, and what it lacks from the newest of those beside it that has it.

    Those are `gpu-*.json` beside `gpu.json`; `others` holds the record of each part that is not its
    own.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    paths = path.parent.glob(f"{path.stem}-*.json")
    beside = [json.loads(p.read_text(encoding="utf-8")) for p in paths]
    others: dict[str, dict] = {}
    for other in sorted(beside, key=lambda r: r["environment"]["date"], reverse=True):
        for have, found in ((record["rows"], other["rows"]), (record, other)):
            lacking = {name: part for name, part in found.items() if name not in have}
            have.update(lacking)
            others.update(dict.fromkeys(lacking, other))
    return record | {"others": others}


def origin(record: dict, part: str) -> dict:
    """The record that a row or a section is of."""
    return record.get("others", {}).get(part, record)


def table(record: dict) -> str:
    """One row a model: both published forms, ours, the ratios and the fraction of the floor."""
    head = [
        "Training step",
        "Published, TF32",
        "Published, autocast",
        "Ours, from Python",
        "Ours, graph",
    ]
    head += ["× TF32", "× autocast", "of the floor", "peak memory"]
    rows = []
    for name, row in record["rows"].items():
        ours = max(row["ours_python"], row["ours_graph"], key=_rate)
        forms = ("published_tf32", "published_autocast", "ours_python", "ours_graph")
        rows.append([name, *(_speed(row[form]) for form in forms)])
        rows[-1] += [_ratio(row, f"times_{form}") for form in forms[:2]]
        rows[-1] += [f"{row['fraction_of_floor']:.0%}", f"{ours['peak_gib']:.1f} GiB"]
    lines = [markdown.table(head, rows), "", f"Sequences per second (batch). {_run(record)}."]
    for name, row in record["rows"].items():
        if "errors" not in row:  # records of old have none
            lines.append(f"{name}: losses were compared, but no gradients.")
        if row.get("rival"):  # another model for the same task: sequences, not one function
            lines.append(f"{name} is another model than the published form it is compared with.")
        lines += [f"No ratio for {name}: {reason}." for reason in row["refusals"]]
    if "training_losses" in record:  # records of old have none
        lines.append(training(record))
    return "\n".join([*lines, *_others(record, *record["rows"], "training_losses")])


def training(record: dict) -> str:
    """Where the losses of both forms end, how far apart they are, and how far two seeds are."""
    about = record["training_losses"]
    curves = about.get("losses", about)  # records of old hold nothing else, of noise that moves
    steps = len(next(iter(curves.values())))
    tail = min(TAIL, steps)
    ends: dict[str, list[float]] = {}
    for name, losses in curves.items():  # of each form, seed by seed
        ends.setdefault(name.rsplit(", ", 1)[0], []).append(fmean(losses[-tail:]))
    learnt = "; ".join(f"{form}: " + ", ".join(f"{e:.2e}" for e in ends[form]) for form in ends)
    if "constant" in about:
        learnt += f"; the best constant forecast: {about['constant']:.2e}"
    published, ours = ends.values()
    gap = max(abs(mine / theirs - 1) for theirs, mine in zip(published, ours, strict=True))
    seeds = max(max(of) / min(of) - 1 for of in ends.values())
    return (
        f"Training FERNN-V^T_1 for {steps} steps from {len(ours)} draws of its weights, the last "
        f"{tail} steps have a mean loss of ({learnt}). The two forms of one draw end "
        f"{100 * gap:.2g} % apart at most, two draws in one form {100 * seeds:.2g} %."
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
    rows = []
    for name, (tf32, autocast, floor, memory) in GOALS.items():
        row = record["rows"][name]
        ours = max(row["ours_python"], row["ours_graph"], key=_rate)
        cells = [
            _ratio(row, "times_published_tf32") + _goal(tf32, "{:g}"),
            _ratio(row, "times_published_autocast") + _goal(autocast, "{:g}"),
            f"{row['fraction_of_floor']:.0%}" + _goal(floor, "{:.0%}"),
            f"{ours['peak_gib']:.1f} GiB" + _goal(memory, "{:g}"),
        ]
        rows.append([name, *cells])
    made = markdown.table([*head, "memory (goal)"], rows)
    return "\n".join([made, "", f"{_run(record)}.", *_others(record, *GOALS)])


def _goal(value: float | None, form: str) -> str:
    return "" if value is None else f" ({form.format(value)})"


def streaming(record: dict) -> str:
    """One frame at batch 1: from the call until the forecast is there."""
    head = ["One frame, batch 1", "Published, TF32", "Published, autocast", "Ours"]
    rows = []
    measured = record["streaming"]
    for suffix, name in (("", "a step, read out"), ("_two_steps", "two steps, as published")):
        forms = ("published_tf32", "published_autocast", "ours")
        times = [f"{measured[form + suffix]['median_us']:,.0f} µs" for form in forms]
        ratios = [_ratio(measured, f"times_{form}{suffix}") for form in forms[:2]]
        rows.append([name, *times, *ratios])
    notes = _others(record, "streaming")
    notes += [f"No ratio: {reason}." for reason in measured["refusals"]]
    made = markdown.table([*head, "× TF32", "× autocast"], rows)
    return "\n".join([made, *([""] if notes else []), *notes])


def memory(record: dict) -> str:
    """What a batch takes in parts whose gradients add up, beside the whole."""
    measured = record["memory"]
    whole = measured["points"][0]
    about = f"{measured['row']}, a batch of {whole['batch']} in"
    rows = []
    for point in measured["points"]:
        slower = 1 - _rate(point) / _rate(whole)
        parts = "one part" if point["parts"] == 1 else f"{point['parts']} parts"
        cells = [f"{_rate(point):,.0f}", "–" if point is whole else f"{slower:.0%}"]
        rows.append([parts, *cells, f"{point['peak_gib']:.1f} GiB"])
    made = markdown.table([about, "sequences/s", "slower by", "peak memory"], rows)
    return "\n".join([made, "", f"{_run(origin(record, 'memory'))}."])


def _run(record: dict) -> str:
    """Machine, day, versions and the rate that floors are made of."""
    there = record["environment"]
    commit = (there["commit"] or "unknown")[:12] + ("+" if there["dirty"] else "")
    return (
        f"{record['gpu']}, {there['date'][:10]}, torch {there['torch']}, cuDNN {record['cudnn']}, "
        f"commit {commit}; bfloat16 8192³ product "
        f"{record['matmul_flops_per_second'] / 1e12:.0f} TFLOP/s"
    )


def _others(record: dict, *parts: str) -> list[str]:
    """Which of these rows and sections are not of the record itself, a line for each run."""
    names: dict[str, list[str]] = {}
    for part in parts:
        if (other := origin(record, part)) is not record:
            names.setdefault(_run(other), []).append(_SECTIONS.get(part, part))
    return [f"From another run ({run}): {'; '.join(of)}." for run, of in names.items()]


def _rate(form: dict) -> float:
    return form["sequences_per_second"]


def _speed(form: dict) -> str:
    rate = _rate(form)
    return f"{rate:,.{int(rate < 100)}f} ({form['batch']})"


def _ratio(row: dict, key: str) -> str:
    return f"{row[key]:.1f}" if key in row else "refused"


def asked(description: str) -> Path:
    """The record that a command line names, or the one that is kept; of rows, or it is refused."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "record",
        nargs="?",
        type=Path,
        default=RECORD,
        help="what `python -m benchmarks.gpu` wrote; benchmarks/results/gpu.json if not given",
    )
    path = parser.parse_args().record
    try:
        found = "rows" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{path} cannot be read: {error}")
    if not found:
        parser.error(f"{path} is no record of `python -m benchmarks.gpu`: it has no rows.")
    return path


def main() -> None:
    record = load(asked(__doc__.splitlines()[0]))
    print(table(record))
    if "streaming" in record:  # records of old have none
        print("\n" + streaming(record))


if __name__ == "__main__":
    main()
