"""Write the README's measured tables from the records: `python -m benchmarks.readme`.

A section lies between `<!-- NAME: begin … -->` and `<!-- NAME: end -->`; a test holds the README to
what this prints, so no number is typed by hand.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from fernn._files import written_whole

ROOT = Path(__file__).parent.parent


def verification(record: dict) -> str:
    """The table of errors that `fernn verify --record` wrote."""
    columns = ["flow", "model", "float64", "trained", "float32", "bfloat16"]
    columns += ["all of V", "interpolation", "verdict"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|" + "--:|" * 6 + "---|"]
    for row in record["rows"]:
        cells = [_number(row[name]) for name in columns]
        lines.append("| " + " | ".join(cells).replace("|ν|", "\\|ν\\|") + " |")
    return "\n".join([*lines, "", _origin(record)])


SECTIONS: dict[str, tuple[str, Callable[[dict], str]]] = {
    "verification": ("results/verification.json", verification),
}


def render(text: str) -> str:
    """`text` with every section written anew from its record."""
    for name, (source, write) in SECTIONS.items():
        record = json.loads((ROOT / source).read_text(encoding="utf-8"))
        pattern = rf"(<!-- {name}: begin.*?-->\n).*?(<!-- {name}: end -->)"
        text, found = re.subn(pattern, lambda m: f"{m[1]}{write(record)}\n{m[2]}", text, flags=re.S)  # noqa: B023  # used at once
        if found != 1:
            raise ValueError(f"README.md must have one section {name!r}, found {found}.")
    return text


def _number(value: object) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if value else "0"


def _origin(record: dict) -> str:
    """Where the numbers come from, in one line."""
    there = record["environment"]
    machine = there["gpu"] or there["cpu"]
    return (
        f"<sub>{machine}, torch {there['torch']}, {there['date'][:10]}, "
        f"commit {there['commit'][:7]}, seed {record.get('seed', 0)}</sub>"
    )


def main() -> None:
    path = ROOT / "README.md"
    text = render(path.read_text(encoding="utf-8"))
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
