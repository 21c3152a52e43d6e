"""What the GPU benchmark counts, when it refuses a ratio, and how its record is printed."""

import copy
import json
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.gpu import rotation, row, translation

_RECORD = Path(report.__file__).parent / "results" / "gpu.json"


def test_flops_of_a_training_sequence() -> None:
    assert translation.flops(2) == pytest.approx(341e9, rel=2e-3)
    assert translation.flops(0) < translation.flops(1) < translation.flops(2)


def _row() -> dict:
    return {
        "losses": {"float32": [1.0, 1.0], "as timed": [1.0, 1.001]},
        "operators": {"fernn.flow_advance.default": 1},
        "flops_per_sequence": 1e9,
        **{form: {"sequences_per_second": 100.0} for form in ("published_tf32", "ours_python")},
        "published_autocast": {"sequences_per_second": 200.0},
        "ours_graph": {"sequences_per_second": 1000.0},
    }


def test_verdict_gives_ratios_and_the_fraction_of_the_floor() -> None:
    verdict = row.verdict(_row(), (100.0, 200.0), rate=2e12)
    assert verdict["times_published_tf32"] == 10
    assert verdict["times_published_autocast"] == 5
    assert verdict["fraction_of_floor"] == 0.5
    assert verdict["refusals"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"losses": {"float32": [1.0, 1.01]}}, "losses differ in float32"),
        ({"losses": {"as timed": [1.0, float("nan")]}}, "losses differ in as timed"),
        ({"published_tf32": {"sequences_per_second": 89.0}}, "published_tf32 reaches 89.0 of 100"),
        ({"operators": {}}, "the Triton operators did not run"),
    ],
)
def test_verdict_refuses_a_ratio(change: dict, reason: str) -> None:
    verdict = row.verdict(_row() | change, (100.0, 200.0), rate=2e12)
    assert any(reason in refusal for refusal in verdict["refusals"])
    assert "times_published_tf32" not in verdict


def test_report_prints_the_record_and_what_was_refused() -> None:
    record = json.loads(_RECORD.read_text(encoding="utf-8"))
    table = report.table(record)
    assert all(f"| {name} |" in table for name in record["rows"])
    assert record["gpu"] in table
    refused = copy.deepcopy(record)
    refusing = refused["rows"]["G-RNN"]
    del refusing["times_published_tf32"]
    refusing["refusals"] = ["losses differ"]
    assert "No ratio for G-RNN: losses differ." in report.table(refused)
    assert "refused" in report.table(refused)


def test_rotation_rows_count_their_arithmetic_and_follow_their_rival() -> None:
    assert rotation.flops(128) == pytest.approx(289e9, rel=2e-3)
    assert rotation.flops(32 * 36) == pytest.approx(23.3e12, rel=2e-3)
    names = list(rotation.ROWS)
    for index, name in enumerate(names):
        rival = rotation.ROWS[name].rival
        assert rival is None or rival in names[:index]
