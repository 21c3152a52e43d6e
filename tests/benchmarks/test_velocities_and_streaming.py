"""Time and memory against |V|, and one frame at a time: what is refused, and what is drawn."""

import json
from pathlib import Path

import pytest
import torch
from tolerances import same

from benchmarks import plot, report
from benchmarks.gpu import streaming, velocities
from benchmarks.published import PublishedForecaster
from fernn import Forecaster, Stream, Translation

FORMS = ("published_tf32", "published_autocast", "ours")


def _record() -> dict:
    """The record at hand, with invented points."""
    points = [
        {"velocities": n, "refusals": [], "losses": {}}
        | {form: {"sequences_per_second": 100.0 / n, "peak_gib": 1.0 * n} for form in FORMS}
        for n in velocities.NUMBERS
    ]
    return report.load() | {"velocities": {"batch": velocities.BATCH, "points": points}}


def test_a_point_is_timed_in_every_form_and_refused_as_a_row_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = []

    def measured(row, model, batch, autocast, graph, runs):
        timed.append((autocast, graph, runs, torch.backends.cudnn.benchmark))
        return {"sequences_per_second": 1.0, "peak_gib": 1.0}

    checked = {"losses": {}, "operators": {}, "errors": {"float32": {"x": 1.0}, "as timed": {}}}
    monkeypatch.setattr(velocities, "timed", measured)
    compared = []
    monkeypatch.setattr(
        velocities.guard, "check", lambda row, *_: compared.append(row.checked) or dict(checked)
    )
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda model: model)
    point = velocities.point(3)
    assert compared == [velocities.BATCH]
    assert timed == [
        (False, False, 8, True),
        (True, False, 8, True),
        (True, False, 8, False),
        (True, True, 8, False),
    ]
    assert len(point["refusals"]) == 2
    assert "fernn.forecast did not run" in point["refusals"][0]
    assert "x differs by 1.0e+00 in float32" in point["refusals"][1]


def test_the_figure_shows_every_form_at_every_velocity_that_is_compared(tmp_path: Path) -> None:
    record = _record()
    record["velocities"]["points"][1]["refusals"] = ["losses differ"]
    figure = plot.velocities(record)
    measured = report.origin(record, "velocities")["environment"]["commit"]
    assert figure.get_suptitle().endswith(f"commit {measured[:7]}")
    time, memory = figure.axes
    for axes in (time, memory):
        assert len(axes.lines) == len(FORMS)
        assert all([*line.get_xdata()] == [1, *range(5, 12, 2)] for line in axes.lines)
    assert time.lines[0].get_ydata()[-1] == pytest.approx(1e3 * 32 * 11 / 100)
    assert memory.lines[0].get_ydata()[-1] == 11
    assert time.lines[-1].get_label() == "fernn, bfloat16, graph"
    for point in record["velocities"]["points"]:
        point["ours_python"] = point["ours"]
    time, _ = plot.velocities(record).axes
    assert [line.get_label() for line in time.lines[2:]] == [
        "fernn, bfloat16, from Python",
        "fernn, bfloat16, graph",
    ]


def test_the_same_record_gives_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "gpu.json").write_text(json.dumps(_record()), encoding="utf-8")
        monkeypatch.setattr("sys.argv", ["plot", str(folder / "gpu.json")])
        plot.main()
        written.append([(folder / f"velocities.{kind}").read_bytes() for kind in ("png", "svg")])
    assert written[0] == written[1]


def test_a_stream_of_the_published_loop_forecasts_what_the_loop_does() -> None:
    model = Forecaster(
        flow=Translation(radius=1), hidden_channels=4, decoder_layers=4, readout="published"
    )
    form, video = PublishedForecaster.of(model), torch.rand(1, 4, 1, 6, 7)
    published, stream = streaming.Published(form, video[:, 0], steps=2), Stream(model)
    for frame in video.unbind(1):
        answers = published(frame), stream(frame)
    assert all(same(answer, form(video, horizon=1)[:, 0]) for answer in answers)


def test_streaming_refuses_ratios_of_forecasts_that_differ() -> None:
    forms = ("published_tf32", "published_autocast", "ours")
    record = {f + s: {"median_us": 1e3} for f in forms for s in ("", "_two_steps")}
    record |= {"ours": {"median_us": 50.0}, "errors": {"published": 1e-3}}
    record["programs"] = {"published": "Fused", "transported": "Fused"}
    verdict = streaming.verdict(record)
    assert verdict["times_published_tf32"] == 20
    assert verdict["times_published_tf32_two_steps"] == 1
    table = report.streaming({"streaming": record | verdict})
    assert "| a step, read out | 1,000 µs | 1,000 µs | 50 µs | 20.0 | 20.0 |" in table
    record["errors"]["published"] = float("nan")
    assert "the forecasts of published differ" in streaming.verdict(record)["refusals"][0]
    refused = record | streaming.verdict(record)
    assert "times_published_tf32" not in refused
    assert "refused" in report.streaming({"streaming": refused})
    record["errors"]["published"] = 0.0
    record["programs"]["transported"] = "Plain"
    (reason,) = streaming.verdict(record)["refusals"]
    assert reason == "the stream of transported ran as Plain, not in the kernels for one frame"
