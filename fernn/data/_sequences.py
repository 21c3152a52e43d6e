"""The official list of KTH, `00sequences.txt`: which frames of which video show the action.

A line is `person01_boxing_d1  frames  1-95, 96-185, 186-245, 246-360` (1-based, both ends included)
or `person13_handclapping_d3  *missing*`, the one video that does not exist. Ranges of a video may
overlap or stand out of order, as nine do in the official file.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from fernn.data._errors import DataError
from fernn.data._files import reason

LIST_NAME = "00sequences.txt"
ACTIONS = ("walking", "jogging", "running", "boxing", "handwaving", "handclapping")
PEOPLE = 25
OFFICIAL_VIDEOS, OFFICIAL_RANGES = 599, 2391

_MAX_BYTES = 2**20
_LINE = re.compile(
    r"(?P<name>person(?P<person>\d\d)_(?P<action>[a-z]+)_d[1-4])[ \t]+"
    r"(?:frames[ \t]+(?P<ranges>\d{1,5}-\d{1,5}(?:,[ \t]*\d{1,5}-\d{1,5})*)|\*missing\*)[ \t]*",
    re.ASCII,
)


@dataclass(frozen=True)
class Sequences:
    """One video of the list: its name, who does what, and the ranges, none if it is missing."""

    name: str
    person: int
    action: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def file_name(self) -> str:
        """The name of the official video file."""
        return f"{self.name}_uncomp.avi"


def read_sequences(path: Path) -> tuple[Sequences, ...]:
    """Every video of the list at `path`, in its order; a line out of form raises."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise DataError(
            f"{path} does not exist; it is the official list of KTH, which `fernn data fetch kth` "
            "downloads."
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}.") from error
    if len(data) > _MAX_BYTES:
        raise DataError(f"{path} is longer than {_MAX_BYTES} bytes: not the official list of KTH.")
    # Latin-1 accepts every byte; the pattern accepts ASCII alone.
    lines = data.decode("latin-1").split("\n")
    videos: dict[str, Sequences] = {}
    for number, line in enumerate(lines, start=1):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        video = _parse(f"{path}, line {number}", line)
        if video.name in videos:
            raise DataError(f"{path}, line {number}: {video.name} is listed twice.")
        videos[video.name] = video
    if not videos:
        raise DataError(f"{path} lists no video: not the official list of KTH.")
    return tuple(videos.values())


def _parse(where: str, line: str) -> Sequences:
    match = _LINE.fullmatch(line)
    if match is None:
        raise DataError(
            f"{where}: expected `personPP_ACTION_dD  frames  A-B, C-D` or `personPP_ACTION_dD  "
            f"*missing*`, got {line[:80]!r}; download the official list again."
        )
    person, action = int(match["person"]), match["action"]
    if not 1 <= person <= PEOPLE or action not in ACTIONS:
        raise DataError(
            f"{where}: expected person 01 to {PEOPLE} and one of {', '.join(ACTIONS)}, got "
            f"{match['name']!r}; download the official list again."
        )
    ranges = []
    for text in (match["ranges"] or "").replace(",", " ").split():
        first, last = (int(number) for number in text.split("-"))
        if not 1 <= first <= last:
            raise DataError(
                f"{where}: a range must count from 1 upwards, got {text!r}; download the official "
                "list again."
            )
        ranges.append((first, last))
    return Sequences(match["name"], person, action, tuple(ranges))
