"""The report: one page, whole in itself, and honest about what is missing."""

import base64
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
import torch
from PIL import Image
from synthetic import clip_metrics, forecast_metrics, write_forecasters, write_run

from fernn.experiments import report, results
from fernn.experiments.results import Results

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Page(HTMLParser):
    """What a page refers to, and whether its tags match."""

    EMPTY = ("meta", "link", "img", "br", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.pictures, self.links = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        found = dict(attributes)
        if tag == "img":
            self.pictures.append(found)
        self.links += [v for k, v in attributes if k in ("src", "href", "action", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    torch.manual_seed(0)
    write_forecasters(folder / "runs", [GRNN, FERNN])
    for name in ("fig5/translation/grnn", "fig6/grnn"):
        write_run(folder / "runs", name, metrics=forecast_metrics(name))
    write_run(folder / "runs", "table2/actions/grnn", metrics=clip_metrics("mocap_actions", 0.75))
    (folder / "runs" / "bad").mkdir()
    (folder / "runs" / "bad" / "record.json").write_text("<script>", encoding="utf-8")
    absent = report.write(folder / "new" / "report.html", results.load(folder / "runs"))
    return folder / "new" / "report.html", absent


def test_report_is_whole_in_itself(written):
    text = written[0].read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.pictures) >= 6
    for link in page.links:
        assert link.startswith(("data:", "#")), link[:80]
    assert "script" not in page.tags
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    anchors = re.findall(r'href="#(\w+)"', text)
    assert anchors
    assert all(f'id="{anchor}"' in text for anchor in anchors)


def test_report_pictures_decode_and_say_what_they_are(written):
    pictures = Page(written[0].read_text(encoding="utf-8")).pictures
    kinds = []
    for picture in pictures:
        head, _, data = picture["src"].partition(",")
        image = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        image.load()
        assert min(image.size) > 50
        assert len(picture["alt"]) > 10
        kinds.append((head, getattr(image, "n_frames", 1) > 1))
    assert ("data:image/gif;base64", True) in kinds  # an animation that moves
    assert ("data:image/png;base64", False) in kinds


def test_report_shows_tables_beside_the_paper_and_what_is_absent(written):
    path, absent = written
    text = path.read_text(encoding="utf-8")
    assert "8.1e-3 ± 6e-4" in text
    assert "0.750" in text
    assert "Accuracy of each class, mocap_actions" in text
    assert "0.665" not in text  # the paper's G-RNN on KTH, which nobody measured here
    assert any(line.startswith("Table 2: ") for line in absent)
    assert any(line.startswith("Figure 8: ") for line in absent)
    assert not any(line.startswith(("Table 1:", "Figure 3:", "Figure 6:")) for line in absent)
    assert "Invented GPU" in text
    assert "0" * 12 in text
    assert "bad/record.json" in text
    assert "<script>" not in text  # nothing of a record becomes markup


def test_report_of_nothing_is_a_page(tmp_path):
    page, absent = report.build(Results(()))
    assert Page(page).open == []
    assert "No finished run yet" in page
    assert len(absent) > 15


def test_report_of_records_alone_at_two_scales(tmp_path, monkeypatch):
    """Some rows, at `short` and at `quick`: every scale has its own table, pictures the larger."""
    rows = [GRNN, "table1/translation/fernn-v1-transported", f"{FERNN}-transported"]
    for name in rows:
        write_run(tmp_path, name, metrics=forecast_metrics(name, mse=1e-3))
    for name in (*rows, FERNN):
        metrics = forecast_metrics(name, "quick", mse=5e-2)
        write_run(tmp_path, name, scale="quick", metrics=metrics)
    page, absent = report.build(results.load(tmp_path))
    short, quick = (page.index(f"Table 1, scale {scale}: ") for scale in ("short", "quick"))
    end = page.index('id="learning"')
    assert short < quick < end
    assert page[short:quick].count("1.00e-3") == 3
    assert "5.00e-2" not in page[short:quick]
    assert page[quick:end].count("5.00e-2") == 4
    captions = re.findall("Figure (?:3|4|13)[^<]*<.*?</figcaption>", page)
    assert len(captions) == 2  # 3 and 4 of translation: nothing of rotation was measured
    assert all("scale short" in caption for caption in captions)
    assert "records alone, without best.safetensors" in page
    assert "image/gif" not in page
    assert any(line.startswith("Figure 12: ") for line in absent)
    assert "copy best.safetensors beside each record" in page
    command = "fernn reproduce table1/rotation --scale short --data FOLDER --out {}"
    assert f"<code>{command.format('RUNS')}</code>" in page  # a home's name is not passed on
    monkeypatch.chdir(tmp_path.parent)
    page, _ = report.build(results.load(tmp_path), forecasts=False)
    assert f"<code>{command.format(tmp_path.name)}</code>" in page


def test_report_without_forecasts_runs_no_model(tmp_path, monkeypatch):
    write_forecasters(tmp_path, [FERNN])
    monkeypatch.setattr("fernn.models.load", lambda path: pytest.fail("ran a model"))
    page, absent = report.build(results.load(tmp_path), forecasts=False)
    assert "Figure 4" in page
    assert "image/gif" not in page
    assert not any(line.startswith("Figure 4:") for line in absent)
    assert "records alone" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: the page is not opened")
@pytest.mark.parametrize("width", [1280, 390])
def test_report_opens_in_chromium(written, width, tmp_path):
    """Every picture has a size, none is wider than a phone or a screen, nothing raises an error."""
    probe = """
    <script>
    const errors = [];
    const keep = event => errors.push(String(event.message || event.target.src));
    addEventListener("error", keep, true);
    </script>"""
    # A window is never as narrow as a phone, but a frame within it is.
    around = """
    <iframe src="probed.html" style="width: WIDTHpx; height: 900px"></iframe>
    <script>
    addEventListener("load", () => {
      const view = frames[0], page = view.document, images = [...page.images];
      const right = image => image.getBoundingClientRect().right;
      const found = {images: images.length, errors: view.eval("errors"),
                     lost: images.filter(image => !image.naturalWidth).length,
                     cut: images.filter(image => right(image) > view.innerWidth).length,
                     width: view.innerWidth,
                     wide: page.documentElement.scrollWidth - view.innerWidth};
      document.body.innerHTML = "<pre>found" + JSON.stringify(found) + "</pre>";
    });
    </script>"""
    text = written[0].read_text(encoding="utf-8")
    (tmp_path / "probed.html").write_text(text.replace("<head>", "<head>" + probe), "utf-8")
    page = tmp_path / "around.html"
    page.write_text(around.replace("WIDTH", str(width)), encoding="utf-8")
    result = subprocess.run(
        [
            str(CHROMIUM),
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,900",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(re.search(r"<pre>found({.*?})</pre>", result.stdout).group(1))
    assert found["images"] == len(Page(text).pictures) > 0
    assert found["width"] == width
    assert found["lost"] == 0
    assert found["cut"] == 0
    assert found["errors"] == []
    assert found["wide"] <= 0
    assert "CONSOLE" not in result.stderr
