"""Which runs a page is about, counted and listed, and what they were made with, as HTML."""

import html
from collections import Counter
from datetime import UTC, datetime

import fernn
from fernn.experiments import markup, records
from fernn.experiments.recipes import SCALES
from fernn.experiments.results import Result, Results
from fernn.experiments.typeset import as_html


def lead(results: Results) -> str:
    """What a page is about, in a few lines of HTML."""
    count, others = len(results.every), len(results.changed)
    recipes = len({result.name for result in results.every})
    scales = Counter(result.scale for result in results.every)
    counted = ", ".join(f"{scales[scale]} at scale {scale}" for scale in SCALES if scales[scale])
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    if not count:
        return f"No finished run yet. fernn {fernn.__version__}, {now}."
    scale = (
        "paper: as published; short: ten epochs (clips fifty) of the same model, at another rate; "
        "quick: a smaller task, with a smaller model, fewer sequences and fewer velocities"
    )
    changed = f", {others} of them trained with changed settings" if others else ""
    return html.escape(
        f"{count} finished run{'s' * (count != 1)} of {recipes} recipe{'s' * (recipes != 1)} "
        f"({counted}){changed}, beside the numbers of the paper. Scales: {scale}. "
        f"fernn {fernn.__version__}, {now}."
    )


def label(result: Result) -> str:
    """The recipe of a run and, in a line of its own, what was changed in it."""
    changes = ", ".join(result.changes)
    return f"{result.name}\nwith {changes}" if changes else result.name


def environment(results: Results) -> list[str]:
    """What the runs were made with: distinct environments, then every run."""
    keys = ("commit", "fernn", "torch", "python", "gpu", "cpu")
    seen: Counter[tuple[str, ...]] = Counter()
    for result in results.every:
        about = result.record.get("environment") or {}
        commits = ", ".join(map(records.short, records.commits(result.record)))
        values = [commits, *(str(about.get(key) or "–") for key in keys[1:])]
        seen[tuple(values)] += 1
    rows = [(*values, str(count)) for values, count in seen.most_common()]
    runs = [
        (
            label(result),
            result.scale,
            str(result.seed),
            str((result.record.get("environment") or {}).get("date", "–"))[:10],
            str(result.record.get("precision", "–")),
            result.hardware,
        )
        for result in results.every
    ]
    parts = [markup.table((*keys, "runs"), rows)] if rows else ["<p>No run, no environment.</p>"]
    if runs:
        columns = ("recipe", "scale", "seed", "date", "precision", "hardware")
        parts.append(markup.details("All runs", markup.table(columns, runs)))
    if results.left_out:
        parts.append(
            f"<p>Left out:</p>{markup.items([as_html(line) for line in results.left_out])}"
        )
    return parts
