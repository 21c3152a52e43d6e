"""Time and memory against |V| as a figure, from the record: `python -m benchmarks.plot [FILE]`.

It goes beside the record, as `velocities.png` and `velocities.svg`.
"""

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks import report

_FORMS = {
    # form: label, colour, marker
    "published_tf32": ("published, TF32", "#b3562c", "o"),
    "published_autocast": ("published, bfloat16", "#d99a5b", "s"),
    "ours_python": ("fernn, bfloat16, from Python", "#7fb0cf", "^"),
    "ours": ("fernn, bfloat16, graph", "#1f5f8b", "D"),
}


def velocities(record: dict) -> Figure:
    """Two panels: milliseconds of a training step and GiB at its peak, over the velocities."""
    figure = Figure(figsize=(8.4, 3.5), layout="constrained")
    time, memory = figure.subplots(1, 2)
    against = record["velocities"]
    points = [point for point in against["points"] if not point["refusals"]]
    for name, (label, colour, marker) in _FORMS.items():
        if not all(name in point for point in points):  # a record of old lacks what was not timed
            continue
        number = [point["velocities"] for point in points]
        rate = [point[name]["sequences_per_second"] for point in points]
        style = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.6}
        time.plot(number, [1e3 * against["batch"] / r for r in rate], label=label, **style)
        memory.plot(number, [point[name]["peak_gib"] for point in points], **style)
    time.set_ylabel("training step [ms]")
    memory.set_ylabel("peak memory [GiB]")
    for axes in (time, memory):
        axes.set_xlabel("velocities |V|")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", linewidth=0.5, alpha=0.4)
    time.legend(frameon=False, loc="upper left", fontsize="small")
    run = report.origin(record, "velocities")
    there = run["environment"]
    figure.suptitle(
        f"x-velocities, 28×28, 128 channels, 20 frames, batch {against['batch']} · "
        f"{run['gpu']}, torch {there['torch']}, {there['date'][:10]}, "
        f"commit {(there['commit'] or 'unknown')[:7]}",
        fontsize=8.5,
        color="0.35",
    )
    return figure


def main() -> None:
    path = report.asked(__doc__.splitlines()[0])
    figure = velocities(report.load(path))
    with matplotlib.rc_context({"svg.hashsalt": "fernn"}):  # the same record gives the same file
        figure.savefig(path.parent / "velocities.svg", metadata={"Date": None})
        figure.savefig(path.parent / "velocities.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
