"""Whether what was measured is what a record says."""

from collections.abc import Iterator
from typing import Any

_RELATIVE = 0.02
"""Weights that were rounded to float16 come closer than this to those that were recorded."""
_CLIPS = 3
"""So many clips may change sides: of those near a border another rounding moves some."""
_APART = ("mse_per_step_long", "accuracy_per_class", "confusion")
"""A rounding grows along a forecast, and moves a large share of a small class."""
_LABELS = {"mean": "the mean of these sequences", "sequence_mse": "the MSE of sequence"}
"""Names that say too little alone."""


def agreement(measured: dict[str, Any], recorded: dict[str, Any]) -> str | None:
    """One line that says whether metrics are those of a record, None where they share none."""
    shared = [name for name in measured if name in recorded and name not in _APART]
    worst, text = 0.0, "all that is compared is the same"
    for name in shared:
        label = _LABELS.get(name, name.replace("_", " "))
        ours, theirs = (dict(_leaves(metrics[name], label)) for metrics in (measured, recorded))
        for place in dict.fromkeys((*ours, *theirs)):
            here, there = ours.get(place, "missing"), theirs.get(place, "missing")
            if not isinstance(here, float) or not isinstance(there, float):
                if here != there:
                    both = f"{_shown(here)}, recorded {_shown(there)}"
                    return f"differs from its record: {place} is {both}"
                continue
            if name.startswith("accuracy"):
                clips = measured["sequences"]["test"]
                moved = round(abs(here - there) * clips)
                share, words = moved / _CLIPS, f"{moved} of {clips} clips ({_CLIPS} are allowed)"
            else:
                apart = abs(here - there) / max(abs(here), abs(there), 1e-300)
                words = f"{100 * apart:.3g}% ({100 * _RELATIVE:g}% is allowed)"
                share = apart / _RELATIVE
            if share > worst:
                worst, text = share, f"{place} differs most, by {words}"
    if not shared:
        return None
    return f"{'agrees with' if worst <= 1 else 'differs from'} its record: {text}"


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The values inside lists and dictionaries, each with the words that lead to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{place} {key}")
    elif isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from _leaves(item, f"{place} {number}")
    else:
        yield place, value


def _shown(value: object) -> str:
    if value is None:
        return "not finite"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
