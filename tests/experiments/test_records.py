"""Records say what was measured on what, and no number in the README is typed by hand."""

import json
from pathlib import Path

import pytest

from benchmarks import readme
from fernn.experiments import records


def test_environment_names_commit_versions_and_hardware():
    found = records.environment()
    for name in ("date", "commit", "dirty", "fernn", "python", "torch", "cpu", "threads", "gpu"):
        assert name in found
    json.dumps(found)


def test_write_is_whole_or_absent(tmp_path):
    path = tmp_path / "new" / "record.json"
    records.write(path, {"ν": 1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ν": 1}
    with pytest.raises(TypeError):
        records.write(path, {"bad": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"ν": 1}
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize("page", readme.SECTIONS)
def test_pages_show_what_the_records_hold(page):
    text = Path(readme.ROOT, page).read_text(encoding="utf-8")
    assert readme.render(text, page) == text


def test_render_repairs_what_was_typed_by_hand():
    text = Path(readme.ROOT, "README.md").read_text(encoding="utf-8")
    assert readme.render(text.replace("exact", "vague")) == text.replace("exact", "vague").replace(
        "| vague |", "| exact |"
    )


def test_readme_without_its_section_is_refused():
    with pytest.raises(ValueError, match="verification"):
        readme.render("nothing here")
