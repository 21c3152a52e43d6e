"""Records say what was measured on what, and no number in the README is typed by hand."""

import json
import subprocess
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


def test_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "record.json"
    records.write(path, {"a": float("nan"), "b": [(1.0, float("-inf"))], "c": {"d": float("inf")}})
    found = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert found == {"a": None, "b": [[1.0, None]], "c": {"d": None}}


@pytest.mark.parametrize("page", readme.SECTIONS)
def test_pages_show_what_the_records_hold(page):
    text = Path(readme.ROOT, page).read_text(encoding="utf-8")
    assert readme.render(text, page) == text


def test_render_repairs_what_was_typed_by_hand():
    text = Path(readme.ROOT, "README.md").read_text(encoding="utf-8")
    typed = text.replace("| exact |", "| vague |")
    assert typed != text
    assert readme.render(typed) == text


def test_readme_without_its_section_is_refused():
    with pytest.raises(ValueError, match="verification"):
        readme.render("nothing here")


def test_a_package_below_another_checkout_has_no_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    commit = ["commit", "-q", "--allow-empty", "-m", "another's"]
    subprocess.run(["git", "-C", tmp_path, *who, *commit], check=True)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "records.py"))
    monkeypatch.delenv("FERNN_COMMIT", raising=False)
    assert records.environment()["commit"] is None
