"""What `prepare_kth` wrote and what it left out, for people to read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fernn.data._sequences import OFFICIAL_RANGES, OFFICIAL_VIDEOS

Kind = Literal["missing", "short", "absent", "damaged", "beyond", "unlisted"]
_TITLES: dict[Kind, str] = {
    "missing": "listed as missing",
    "short": "ranges shorter than 32 frames",
    "absent": "videos not in the source",
    "damaged": "videos truncated, foreign or unreadable",
    "beyond": "ranges beyond the end of their video",
    "unlisted": "files that the list does not name",
}
# A few of these are printed and the rest counted: they may be hundreds, with nothing wrong.
_ABRIDGED = ("short", "absent", "unlisted")
_SHOWN = 5


@dataclass(frozen=True)
class LeftOut:
    """One video, range or file that is not in the archive, and why."""

    kind: Kind
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


@dataclass(frozen=True)
class KTHSummary:
    """What `prepare_kth` wrote and what it left out; prints well."""

    out: Path
    clips: int
    frames: int
    videos: int
    splits: tuple[tuple[str, int], ...]
    listed_videos: int
    listed_ranges: int
    left_out: tuple[LeftOut, ...]

    def of_kind(self, kind: Kind) -> tuple[LeftOut, ...]:
        """What was left out for one reason."""
        return tuple(item for item in self.left_out if item.kind == kind)

    def __str__(self) -> str:
        lines = [
            f"{self.out}: {self.clips} clips, {self.frames} frames, from {self.videos} videos",
            "  " + ", ".join(f"{split} {count}" for split, count in self.splits),
        ]
        if (self.listed_videos, self.listed_ranges) != (OFFICIAL_VIDEOS, OFFICIAL_RANGES):
            lines.append(
                f"  not the official list: {self.listed_ranges} ranges of {self.listed_videos} "
                f"videos, which has {OFFICIAL_RANGES} of {OFFICIAL_VIDEOS}"
            )
        for kind, title in _TITLES.items():
            if items := self.of_kind(kind):
                lines.append(f"  left out, {title}: {len(items)}")
                shown = items[:_SHOWN] if kind in _ABRIDGED else items
                lines.extend(f"    {item}" for item in shown)
                if len(items) > len(shown):
                    lines.append(f"    and {len(items) - len(shown)} more")
        return "\n".join(lines)
