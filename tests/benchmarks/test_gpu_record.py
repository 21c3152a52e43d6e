"""What the GPU benchmark counts, when it refuses a ratio, and how its record is printed."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity

from benchmarks import plot, report
from benchmarks.gpu import __main__ as command
from benchmarks.gpu import guard, losses, rotation, row, timing, translation

FORMS = ("published_tf32", "published_autocast")


def test_flops_of_a_training_sequence() -> None:
    assert translation.flops(2) == pytest.approx(341e9, rel=2e-3)
    assert translation.flops(0) < translation.flops(1) < translation.flops(2)


def test_forecasts_are_compared_in_the_kernels_that_are_timed() -> None:
    """A tile of the step is 64 images: fewer of one ν are another kernel, or none in a G-RNN."""
    for compared in translation.ROWS.values():
        assert compared.checked % 64 == compared.batch % 64 == 0


def _row() -> dict:
    return {
        "losses": {"float32": [1.0, 1.0], "as timed": [1.0, 1.001]},
        "errors": {
            "float32": {"the prediction": 1e-6},
            "as timed": {"the prediction": 1e-2},
            guard.YARDSTICK: {"the prediction": 1e-2},
        },
        "operators": {"fernn.forecast.default": 1},
        "known": [100.0, 200.0],
        "flops_per_sequence": 1e9,
        **{form: {"sequences_per_second": 100.0} for form in ("published_tf32", "ours_python")},
        "published_autocast": {"sequences_per_second": 200.0},
        "ours_graph": {"sequences_per_second": 1000.0},
    }


def test_verdict_gives_ratios_and_the_fraction_of_the_floor() -> None:
    verdict = row.verdict(_row(), "fernn.forecast", rate=2e12)
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
        ({"operators": {}}, "the operator fernn.forecast did not run"),
        (
            {"operators": {"fernn.forecast_backward.default": 1, "fernn.flow_pool.default": 1}},
            "the operator fernn.forecast did not run",
        ),
        (
            {"errors": _row()["errors"] | {"float32": {"the prediction": 1e-2}}},
            "the prediction differs by 1.0e-02 in float32",
        ),
    ],
)
def test_verdict_refuses_a_ratio(change: dict, reason: str) -> None:
    verdict = row.verdict(_row() | change, "fernn.forecast", rate=2e12)
    assert any(reason in refusal for refusal in verdict["refusals"])
    assert "times_published_tf32" not in verdict


def test_a_row_is_refused_where_its_rival_is_slower_than_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ratio is with the published form of another row, timed there."""
    rows = rotation.ROWS
    name, timed = next((name, r) for name, r in rows.items() if r.rival)
    checked = {key: _row()[key] for key in ("losses", "errors")}
    checked["operators"] = {f"{timed.needs}.default": 1}
    small = {"sequences_per_second": 1000.0}
    monkeypatch.setattr(guard, "check", lambda *_: checked)
    monkeypatch.setattr(row, "timed", lambda *_, **__: small)
    monkeypatch.setattr(row, "training_step", lambda *_: lambda: torch.zeros(()))
    monkeypatch.setattr(row, "launched", lambda step: {"a kernel": 1.0})
    known = rows[timed.rival].known[0]
    for reached, refused in ((0.95, False), (0.85, True)):
        rival = {form: {"sequences_per_second": reached * known} for form in FORMS}
        done = {timed.rival: rival | {"known": list(rows[timed.rival].known)}}
        stand_in = dataclasses.replace(
            timed, ours=lambda: torch.nn.Linear(1, 1), published=lambda model: model
        )
        record = row.run(stand_in, 2e12, done)
        assert any("published_tf32 reaches" in r for r in record["refusals"]) == refused, name
        assert ("times_published_tf32" in record) != refused


def test_report_says_how_near_training_ends() -> None:
    losses = {"published, float32": (1.0, 1.1), "ours, bfloat16": (1.01, 1.1)}
    curves = {f"{f}, seed {i}": [2.0, ends[i]] for f, ends in losses.items() for i in (0, 1)}
    line = report.training({"training_losses": {"losses": curves, "constant": 3.0}})
    assert "for 2 steps from 2 draws of its weights, the last 2 steps have a mean loss of" in line
    assert "(published, float32: 1.50e+00, 1.55e+00; ours, bfloat16: 1.50e+00, 1.55e+00" in line
    assert "the best constant forecast: 3.00e+00)" in line
    assert "The two forms of one draw end 0.33 % apart" in line
    assert "two draws in one form 3.3 %" in line
    record = report.load()
    assert report.training(record) in report.table(record)
    del record["training_losses"]
    assert "two draws" not in report.table(record)


def test_commands_say_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, no traceback: without a GPU, without the file, with a record of something else."""
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for main, arguments, reason in (
        (command.main, [], "times a CUDA device and torch sees none"),
        (report.main, [str(tmp_path / "none.json")], "none.json cannot be read"),
        (plot.main, [str(other)], "it has no rows"),
    ):
        monkeypatch.setattr("sys.argv", ["command", *arguments])
        with pytest.raises(SystemExit):
            main()
        assert reason in capsys.readouterr().err


def test_report_prints_the_record_and_what_was_refused() -> None:
    record = report.load()
    table = report.table(record)
    assert all(f"| {name} |" in table for name in record["rows"])
    assert record["gpu"] in table
    grnn = record["rows"]["G-RNN"]
    for form in ("ours_python", "ours_graph"):  # as the published form is launched, and faster
        assert f"| {grnn[form]['sequences_per_second']:,.0f} (128) |" in table
    refused = copy.deepcopy(record)
    refusing = refused["rows"]["G-RNN"]
    del refusing["times_published_tf32"]
    refusing["refusals"] = ["losses differ"]
    assert "No ratio for G-RNN: losses differ." in report.table(refused)
    assert "refused" in report.table(refused)


def test_what_a_record_lacks_is_of_the_newest_before_it_that_has_it(tmp_path: Path) -> None:
    whole = {name: part for name, part in report.load().items() if name != "others"}

    def write(name: str, hour: int, lacks: tuple[str, ...] = ()) -> dict:
        record = copy.deepcopy(whole)
        record["environment"] |= {"date": f"2000-01-01T0{hour}", "commit": name}
        for part in lacks:
            (record["rows"] if part in record["rows"] else record).pop(part)
        (tmp_path / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
        return record

    mixing = "FERNN-V^T_2, V-mixing"
    write("gpu-b", 1)
    middle = write("gpu-a", 2, lacks=("streaming",))
    newest = write("gpu", 3, lacks=(mixing, "streaming", "training_losses"))
    record = report.load(tmp_path / "gpu.json")
    parts = ("G-RNN", mixing, "training_losses", "streaming")
    of = [report.origin(record, part)["environment"]["commit"] for part in parts]
    assert of == ["gpu", "gpu-a", "gpu-a", "gpu-b"]
    assert record["rows"][mixing] == middle["rows"][mixing]
    rate = f"{whole['matmul_flops_per_second'] / 1e12:.0f} TFLOP/s"
    run = f"commit gpu-a; bfloat16 8192³ product {rate}"
    assert f"{run}): {mixing}; the losses of training." in report.table(record)
    assert f"{run}): {mixing}." in report.goals(record)
    assert "commit gpu-b" in report.streaming(record)
    assert report.load(tmp_path / "gpu-a.json") == middle | {"others": {}}
    assert "another run" not in report.table(newest)


def test_rotation_rows_count_their_arithmetic_and_follow_their_rival() -> None:
    assert rotation.flops(128) == pytest.approx(289e9, rel=2e-3)
    assert rotation.flops(32 * 36) == pytest.approx(23.3e12, rel=2e-3)
    names = list(rotation.ROWS)
    for index, name in enumerate(names):
        rival = rotation.ROWS[name].rival
        assert rival is None or rival in names[:index]


def test_what_is_launched_is_recorded_longest_first() -> None:
    x = torch.rand(300, 300)
    kernels = timing.launched(lambda: (x @ x).sum(), ProfilerActivity.CPU)
    assert {"aten::mm", "aten::sum"} <= kernels.keys()
    assert list(kernels.values()) == sorted(kernels.values(), reverse=True)
    assert len(kernels) <= timing.KERNELS


def test_both_forms_train_from_the_same_weights_on_the_same_digits() -> None:
    record = losses.run(steps=3, batch=2, channels=8, device="cpu")
    curves = record["losses"]
    assert isinstance(curves, dict)
    assert len(curves) == 2 * len(losses.SEEDS)
    for seed in losses.SEEDS:
        ours, theirs = (
            curves[f"{f}, seed {seed}"] for f in ("ours, bfloat16", "published, float32")
        )
        assert ours == pytest.approx(theirs, rel=2e-2)
        assert ours != theirs
    assert len({tuple(curve) for curve in curves.values()}) == len(curves)
    assert 0 < record["constant"] < 1
    assert "for 3 steps from 2 draws of its weights, the last 3" in report.training(
        {"training_losses": record}
    )
