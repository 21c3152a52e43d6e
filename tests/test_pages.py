"""Pages point to what exists: files, and headings in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "docs", "results", "fernn/ops")
    for path in (ROOT / folder).glob("*.md")
)


def headings(page: Path) -> list[str]:
    """What a link to each heading of a page ends with."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    here = ROOT / page
    text = re.sub(
        r"\$\$.*?\$\$|```.*?```|\$[^$]*\$", "", here.read_text(encoding="utf-8"), flags=re.S
    )
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = link.partition("#")
        there = here.parent / file if file else here
        assert link.startswith("https://") or there.exists(), link
        assert not heading or heading in headings(there), link
