"""The page, in a real Chromium, before a real Triton with small models."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_door.access import certificate
from bundle_door.access.key_file import Client, add
from bundle_door.documents import find_files
from bundle_serving.process.exposure import CERTIFICATE
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from tests import axe
from tests.door.servers import MODELS, Behind, behind_the_door
from tests.project import picture
from tests.screens.chromium import Tab, browser
from tests.screens.page import choose, open_played

HIGH = b"\xff" * 10
CANDIDATE = f"{PIPELINE}_candidate"
ENSEMBLE = """
name: "{name}"
platform: "ensemble"
max_batch_size: 16
input [ {{ name: "INPUT" data_type: TYPE_UINT8 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }} ]
ensemble_scheduling {{ step [ {{
  model_name: "picture" model_version: -1
  input_map {{ key: "INPUT" value: "INPUT" }}
  output_map {{ key: "OUTPUT" value: "OUTPUT" }}
}} ] }}
{more}
"""
# Pipelines that find something, by their one step.
FINDERS = {"detection": "boxes", "segmentation": "areas"}
SHARE = """
parameters { key: "share" value { string_value: "10" } }
parameters { key: "version" value { string_value: "7" } }
"""
MANIFEST = {"identity": {"arch": "mobilenet_v2", "weights": {"source": "random"}}}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline, and a candidate beside it, both of one step that is not trained."""
    repository = tmp_path_factory.mktemp("page") / "models"
    shutil.copytree(MODELS, repository)
    for name, more in ((PIPELINE, ""), (CANDIDATE, SHARE)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(ENSEMBLE.format(name=name, more=more))
        shutil.copy(MODELS / "picture" / "labels.txt", repository / name)
    for name, step in FINDERS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(of_one_step(name, step))
    manifest = json.dumps({**MANIFEST, "untrained": True})
    (repository / "picture" / "1" / "manifest.json").write_text(manifest)
    served = {"time": "2026-01-02T03:04:05+00:00", "what": "serves", "version": 3, "how": "up"}
    stayed = {"time": "2026-01-01T03:04:05+00:00", "what": "stayed", "version": 4, "how": "rollout"}
    events = [{**each, "note": "it"} for each in (stayed, served)]
    (repository / "history.json").write_text(json.dumps({PIPELINE: events}))
    return repository


def of_one_step(name: str, step: str) -> str:
    """The config of an ensemble that answers as its step."""
    _, _, rest = (MODELS / step / "config.pbtxt").read_text().partition("max_batch_size")
    tensors, _, _ = rest.partition("instance_group")
    outputs = re.findall(r'name: "(\w+)"', tensors)[1:]
    maps = "".join(f'output_map {{ key: "{each}" value: "{each}" }} ' for each in outputs)
    return f"""
name: "{name}"
platform: "ensemble"
max_batch_size{tensors}
ensemble_scheduling {{ step [ {{
  model_name: "{step}" model_version: -1
  input_map {{ key: "INPUT" value: "INPUT" }} {maps}
}} ] }}
"""


@pytest.fixture(scope="module")
def page(repository: Path) -> Iterator[Behind]:
    options = ["--repository", str(repository)]
    models = [PIPELINE, CANDIDATE, *FINDERS]
    with behind_the_door(repository.parent / "run", repository, models, options) as server:
        yield server


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture
def tab(page: Behind, chromium: Tab) -> Tab:
    """The page, opened anew."""
    chromium.look()
    opened(chromium, f"http://localhost:{page.http_port}/")
    chromium.console.clear()
    return chromium


def opened(tab: Tab, url: str) -> None:
    tab.open(url)
    tab.until("!document.getElementById('pipeline').disabled")


def pictures(folder: Path) -> tuple[Path, Path]:
    good, broken = folder / "high.jpg", folder / "broken.jpg"
    good.write_bytes(HIGH)
    broken.write_bytes(b"text")
    return good, broken


def test_a_dropped_picture_is_asked_of_both_versions(tab: Tab, tmp_path: Path) -> None:
    assert "Untrained weights" in tab.text("#untrained")
    good, broken = pictures(tmp_path)
    tab.drop(good)
    tab.until("document.querySelectorAll('.labels').length === 2")
    tab.until("document.getElementById('tally').innerText")
    titles = tab.run("[...document.querySelectorAll('.answer h3')].map(each => each.innerText)")
    assert titles == ["Pictures, version 3 same", "Pictures, version 7 same"]
    assert tab.text("#tally") == "same 1 · differs 0"
    assert tab.text(".labels li").split("\n") == ["high", "100.0 %"]
    # Untrained weights are told of the pipelines chosen, of each answer, and in both menus.
    assert tab.text(".answer .facts") == "untrained weights mobilenet_v2, weights random"
    assert str(tab.run("document.body.innerText")).lower().count("untrained") == 5
    assert "candidate, 10%" in tab.text(".answer:nth-of-type(2) .facts")
    assert tab.console == []
    tab.drop(broken)
    assert tab.until("document.querySelector('.error b')?.innerText") == "Not a JPEG."
    assert tab.text(".error span") == "Send one"
    assert tab.text("#spoken").startswith("broken.jpg: Not a JPEG")
    # The browser itself notes each answer of 400.
    assert all("status of 400" in line for line in tab.console), tab.console


def test_answers_stay_marked_and_are_not_left(tab: Tab, tmp_path: Path) -> None:
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelectorAll('.labels').length === 2")
    choose(tab, "detection")
    assert tab.run("document.getElementById('untrained').hidden")
    assert tab.run("document.querySelectorAll('.answer .badge.differs').length") == 2
    for _ in ("API", "Try it"):
        link = "document.querySelector('nav a')"
        assert tab.run(f"[{link}.target, {link}.rel]") == ["_blank", "noopener"]
        tab.open(tab.run(f"{link}.href"))


def test_another_pipeline_is_offered_the_picture(tab: Tab, tmp_path: Path) -> None:
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelectorAll('.labels').length === 2")
    choose(tab, "detection")
    assert tab.text("#note button") == "Ask Detection about high.jpg"
    tab.run("document.querySelector('#note button').click()")
    tab.until("document.querySelector('.answer h3').innerText === 'Detection, version 1'")
    assert tab.text("#note") == ""
    tab.run("document.getElementById('forget').click()")
    choose(tab, PIPELINE)
    assert tab.text("#note") == ""


def test_what_is_copied(tab: Tab, page: Behind, tmp_path: Path) -> None:
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelectorAll('.labels').length === 2")
    tab.run("document.querySelector('.copies button').click()")
    url = f"http://localhost:{page.http_port}/classify?model={PIPELINE}"
    assert tab.text(".copies pre") == f"curl --data-binary @'high.jpg' '{url}'"


def find(tab: Tab, *files: Path, by: str = "detection") -> None:
    choose(tab, by)
    tab.drop(*files)
    tab.until("document.querySelector('#spoken').innerText && !document.querySelector('.busy')")


def test_boxes_are_drawn_and_listed(tab: Tab, page: Behind, tmp_path: Path) -> None:
    street = tmp_path / "street.jpg"
    street.write_bytes(picture((200, 100)))
    find(tab, street)
    tab.until("document.querySelector('.frame')?.style.left")
    assert tab.text(".answer h3") == "Detection, version 1"
    assert (
        tab.text("#spoken")
        == "street.jpg: car, 91 percent; <b>dog</b>, 62 percent; car, 40 percent"
    )
    places = tab.run("""[...document.querySelectorAll('.frame')].map(({style}) =>
        [style.left, style.top, style.width, style.height].map(parseFloat))""")
    assert places == [[0, 0, 25, 50], [50, 40, 50, 60], [10, 10, 50, 80]]  # the best on top
    drawn, seen = (
        tab.run(f"JSON.stringify(document.querySelector('{each}').getBoundingClientRect())")
        for each in (".frame:last-child", ".scene img")
    )
    drawn, seen = json.loads(drawn), json.loads(seen)
    assert abs(drawn["x"] - seen["x"] - seen["width"] / 10) < 1
    assert abs(drawn["height"] - seen["height"] * 0.8) < 1
    listed = tab.text(".found li:nth-child(2)").split("\n")
    assert listed == ["2<b>dog</b>", "62.0 %", "left 100, top 40, right 200, bottom 100"]
    tab.run("document.querySelector('.found li').focus()")
    tab.press("Tab", 9)
    pointed = tab.run("[...document.querySelectorAll('.pointed')].map(each => each.innerText)")
    assert pointed == ["2 <b>dog</b>", tab.text(".found li:nth-child(2)")]
    tab.run("document.querySelector('.copies button').click()")
    url = f"http://localhost:{page.http_port}/classify?model=detection"
    assert tab.text(".copies pre") == f"curl --data-binary @'street.jpg' '{url}'"
    assert tab.text(".where summary").endswith("of it in the server")
    assert tab.console == []


def count_shown(tab: Tab, what: str) -> int:
    return int(tab.run(f"document.querySelectorAll('{what}:not([hidden])').length"))


def test_boxes_are_chosen_by_score_and_class(tab: Tab, tmp_path: Path) -> None:
    street = tmp_path / "street.jpg"
    street.write_bytes(picture((200, 100)))
    find(tab, street)
    assert tab.text("#ask-title") == "What's where in your picture?"
    assert tab.text(".least output") == "40 %"
    slide(tab, 0.95)
    assert tab.text(".answer .empty") == "Nothing scores 95\N{NO-BREAK SPACE}% or more."
    slide(tab, 0.6)
    assert tab.text(".least output") == "60 %"
    assert count_shown(tab, ".frame") == count_shown(tab, ".found li") == 2
    assert tab.text(".answer .empty") == ""
    tab.run("document.querySelectorAll('.chips button')[1].click()")
    assert tab.text(".chips [aria-pressed=false]") == "<b>dog</b> 1"
    assert count_shown(tab, ".frame") == count_shown(tab, ".found li") == 1
    tab.run("document.querySelector('.chips button').click()")
    assert tab.text(".answer .empty") == "All of its classes are switched off."
    tab.run("document.querySelector('.chips button').click()")
    # The list is beside the picture.
    tab.look(1366, 768)
    scene, listed = (rectangle(tab, each) for each in (".scene", ".found"))
    assert listed["left"] >= scene["right"] and listed["top"] == scene["top"]


def slide(tab: Tab, score: float) -> None:
    tab.run(f"""{{ const slider = document.querySelector('.least input');
        slider.value = {score}; slider.dispatchEvent(new Event('input')); }}""")


def test_what_is_no_share_is_shown_as_it_is(tab: Tab, page: Behind, tmp_path: Path) -> None:
    """Of a kind of the user's own, as in docs/own_kind.md: it sums pixels, and has no labels."""
    label = {"label": "", "index": 0, "probability": 38384640.0}
    open_as(tab, page, "sums", "pictures", f"""
        if (path.startsWith('classify'))
          return Response.json({json.dumps({"labels": [label]})});""")  # fmt: skip
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelector('.labels')?.innerText")
    assert tab.text(".labels").split("\n") == ["value 0", "38384640"]
    assert tab.text("#spoken") == "high.jpg: value 0, 38384640"
    assert not tab.run("document.querySelector('.labels .bar')")


def test_a_long_list_is_shown_in_part(tab: Tab, page: Behind, tmp_path: Path) -> None:
    count = 14
    corners = {"left": 0, "top": 0, "right": 50, "bottom": 50}
    boxes = [
        {"label": "dog" if number > 11 else "car", "score": 0.9 - number / 20, **corners}
        for number in range(count)
    ]
    answer = f"""
        if (path.startsWith('classify')) return Response.json({json.dumps({"boxes": boxes})});"""
    open_as(tab, page, "detection", "boxes", answer)
    tab.look(1366, 768)
    street = tmp_path / "street.jpg"
    street.write_bytes(picture((200, 100)))
    find(tab, street)
    assert count_shown(tab, ".found li") == 10 and count_shown(tab, ".frame") == count
    button = ".found + button"
    assert tab.text(button) == "Show all 14"
    tab.run("document.querySelector('.chips button').click()")
    assert count_shown(tab, ".found li") == 2 and not count_shown(tab, button)
    tab.run("document.querySelector('.chips button').click()")
    assert axe.violations(tab, axe.script()) == []
    tab.run(f"document.querySelector('{button}').click()")
    assert count_shown(tab, ".found li") == count and not count_shown(tab, button)
    assert tab.run("document.activeElement === document.querySelectorAll('.found li')[10]")
    # Beside its end, the picture is still in view.
    tab.run("document.querySelector('.found li:last-child').scrollIntoView({ block: 'end' })")
    assert rectangle(tab, ".scene")["top"] >= rectangle(tab, ".top")["bottom"]


def test_a_high_picture_fits_the_screen(tab: Tab, tmp_path: Path) -> None:
    tab.look(1366, 768)
    street = tmp_path / "street.jpg"
    street.write_bytes(picture((900, 1200)))
    find(tab, street)
    tab.until("document.querySelector('.scene img').complete")
    tab.run("document.getElementById('answers').scrollIntoView()")
    assert rectangle(tab, ".scene")["bottom"] <= 768


def rectangle(tab: Tab, selector: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(tab.run(
        f"JSON.stringify(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
    ))  # fmt: skip
    return found


def test_one_screen_tells_the_story(tab: Tab, tmp_path: Path) -> None:
    """Labels beside their times, and the live figures, at 1366x768."""
    tab.look(1366, 768)
    tab.run("document.getElementById('beside').value = ''")
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelector('.where')?.innerText")
    tab.until("document.querySelector('#tiles').innerText")
    labels, times, card = (rectangle(tab, each) for each in (".labels", ".where", ".card"))
    assert times["left"] >= labels["right"] and times["top"] == labels["top"]
    # Two labels and three steps more, as a network of a thousand classes has, fit as well.
    assert card["bottom"] + 100 <= 768
    assert rectangle(tab, ".drop")["height"] <= 72
    tab.run("scrollTo(0, 1e6)")
    assert rectangle(tab, "#tiles")["top"] >= 0
    tab.look(3840, 2160)
    assert rectangle(tab, ".live")["left"] > rectangle(tab, ".card")["right"]
    assert rectangle(tab, ".live")["right"] - rectangle(tab, ".card")["left"] > 3000


def test_a_drawn_picture_for_those_who_have_none(tab: Tab) -> None:
    choose(tab, PIPELINE)
    tab.until("document.querySelectorAll('#samples button').length === 2")
    tab.run("document.querySelectorAll('#samples button')[1].click()")
    tab.until("document.querySelectorAll('.card .labels').length")
    assert tab.text(".seen figcaption").startswith("fish.jpg · ")
    # All of the zone opens the choice of files, but a sample does not.
    opened = "{ let count = 0; document.getElementById('file').click = () => { count += 1; };"
    for selector, expected in (("#files", 1), ("#drop-say", 1), ("#choose", 1), ("#samples", 1),
                               ("#samples button", 0)):  # fmt: skip
        told = f"document.querySelector('{selector}').click(); count; }}"
        assert tab.run(opened + told) == expected, selector


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
@pytest.mark.parametrize("pipeline", [PIPELINE, "detection", "segmentation"])
def test_what_is_copied_of_a_drawn_picture_needs_nothing(
    tab: Tab, tmp_path: Path, pipeline: str
) -> None:
    """No file, and no package of Python's."""
    choose(tab, pipeline)
    tab.until("document.querySelectorAll('#samples button').length === 2")
    tab.run("document.querySelector('#samples button').click()")
    tab.until("document.querySelector('.copies button')?.innerText")
    for button, (*command, option) in enumerate(
        (["bash", "-o", "pipefail", "-c"], [sys.executable, "-I", "-S", "-c"])
    ):
        tab.run(f"document.querySelectorAll('.copies button')[{button}].click()")
        words = [*command, option, tab.text(".copies pre")]
        told = subprocess.check_output(words, cwd=tmp_path, text=True)
        assert tab.run("document.querySelector('.labels li .name').lastChild.textContent") in told


def test_a_program_gets_the_same_rows(tab: Tab, page: Behind, tmp_path: Path) -> None:
    open_as(tab, page, "flowers", "rows", ROWS)
    (rows := tmp_path / "rows.csv").write_text("1,\n3,4\n")
    tab.drop(rows)
    tab.until("document.querySelector('.copies button')?.innerText")
    tab.run("document.querySelector('.copies button').click()")
    assert '"shape":[1,2],"data":[3,4]' in tab.text(".copies pre")


def test_a_camera_is_asked_live(page: Behind, tmp_path: Path) -> None:
    options = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with browser(tmp_path, *options) as tab:
        tab.look()
        opened(tab, f"http://localhost:{page.http_port}/")
        choose(tab, "detection")
        tab.until("!document.getElementById('photograph').hidden")
        tab.run("document.getElementById('photograph').click()")
        tab.until("document.querySelector('#camera video').videoWidth")
        tab.run("document.getElementById('live').click()")
        tab.until("parseFloat(document.getElementById('frames').innerText) > 0")
        assert "frames/s" in tab.text("#frames") and tab.text("#seen-live").startswith("car")
        assert count_shown(tab, "#camera .frame") == 3
        for dark in (False, True):
            tab.look(dark=dark)
            assert axe.violations(tab, axe.script()) == []
        tab.run("document.getElementById('live').click()")
        tab.until("!document.querySelectorAll('#camera .frame').length")
        tab.run("document.getElementById('shoot').click()")
        tab.until("document.querySelector('.found')?.innerText")
        assert not tab.run("document.getElementById('camera').open") and tab.console == []


# A video of two scenes, as a browser records it.
RECORD = """(async () => {
  const canvas = document.createElement('canvas'), pen = canvas.getContext('2d'), parts = [];
  const recorder = new MediaRecorder(canvas.captureStream(20), { mimeType: 'video/webm' });
  recorder.ondataavailable = event => parts.push(event.data);
  recorder.start();
  for (let frame = 0; frame < 20; frame++) {
    pen.fillStyle = frame < 10 ? '#fff' : '#000';
    pen.fillRect(0, 0, 300, 150);
    await new Promise(done => setTimeout(done, 100));
  }
  await new Promise(done => { recorder.onstop = done; recorder.stop(); });
  const data = new DataTransfer();
  data.items.add(new File(parts, 'clip.webm', { type: 'video/webm' }));
  document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true }));
})()"""


def test_a_video_has_a_timeline_of_labels(tab: Tab) -> None:
    choose(tab, PIPELINE)
    tab.run("document.getElementById('beside').value = ''")
    tab.run(RECORD)
    tab.until(r"/^(\d+) of \1 pictures/.test(document.querySelector('.clip .facts')?.innerText)")
    names = tab.run("[...document.querySelectorAll('.timeline .name')].map(each => each.innerText)")
    assert names and {*names} <= {"low", "middling", "high"}
    part = tab.run("document.querySelector('.timeline button').ariaLabel")
    assert re.fullmatch(r"(low|middling|high), 0:0\d to 0:0\d", part)
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, axe.script()) == []
    assert tab.console == []


def test_what_is_not_answered_is_dated(tab: Tab) -> None:
    tab.until("document.querySelector('#tiles').innerText")
    tab.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
    tab.until("document.body.classList.contains('gone')")
    assert re.match(r"As of \d+:\d\d:\d\d", tab.text("#dated"))
    assert tab.text("#health") == "The server does not answer"
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, axe.script()) == []


def test_a_server_that_stands_still_is_dated(tab: Tab) -> None:
    tab.until("document.querySelector('#tiles').innerText")
    tab.run("""window.fetch = (_, options) => new Promise((_, failed) =>
        options?.signal?.addEventListener('abort', () => failed(options.signal.reason)))""")
    tab.until("document.body.classList.contains('gone')")
    assert re.match(r"As of \d+:\d\d:\d\d", tab.text("#dated"))
    assert tab.text("#health") == "The server does not answer"


# As the server would tell it: in the last slot 20 answers; of 5 requests without one, 2 were
# refused, 1 sent away as busy, and 2 failed.
OBSERVED = """{ const real = window.fetch;
    window.fetch = async (path, options) => {
      const answer = await real(path, options);
      if (!String(path).startsWith('page/live.json')) return answer;
      const told = await answer.json();
      const slots = last => [...told.over_time.failed.slice(1).fill(0), last];
      const series = { pipeline: 'p', version: '1', protocol: 'http', per_second: 4, answered: 240,
        refused: 2, busy: 1, failed: 2, p50_ms: 1, p95_ms: 2, p99_ms: 3,
        throughput: slots(20 / told.slot_s) };
      const gpus = [{ uuid: 'GPU-7a3c', utilization: 0.42, memory_used_bytes: 3.1e9,
        memory_total_bytes: 2.4e10, power_usage: 55.2, power_limit: 72 },
        { uuid: 'GPU-8b', utilization: 0,
        memory_used_bytes: 0, memory_total_bytes: 0, power_usage: 0, power_limit: 0 }];
      const shadows = [{ model: 'p_candidate', version: '3', most: ['tabby', 'tiger cat'],
        counts: { same: 1180, differs: 24, 'left out': 31 } }];
      return new Response(JSON.stringify({ ...told, series: [series], gpus, shadows,
        over_time: { ...told.over_time, refused: slots(2), busy: slots(1), failed: slots(2) } }));
    }; }"""


def test_refused_and_failed_are_told_apart(tab: Tab) -> None:
    tab.run(OBSERVED)
    tab.until("document.querySelectorAll('#throughput path.fault').length === 1")
    assert "Last minute" in tab.text(".top")
    tiles = "[...document.querySelectorAll('#tiles div')].slice(-3)"
    assert tab.run(f"{tiles}.map(each => each.innerText.replace(/\\s+/, ' '))") == [
        "refused 2",
        "busy 1",
        "failed 2",
    ]
    assert tab.run(f"{tiles}.map(each => each.className)") == ["", "", "bad"]
    rows = "[...document.querySelectorAll('#series tr')]"
    (row,) = tab.run(f"{rows}.map(each => each.innerText).filter(each => each.includes('http'))")
    assert row.split()[-3:] == ["2", "1", "2"]
    assert tab.text("#gpus").splitlines() == [
        "GPU: 42 % busy · 3.1 of 24.0 GB · 55 of 72 W",
        "GPU: 0 % busy",  # of which DCGM may not be asked
    ]
    (copies,) = tab.text("#shadows").splitlines()
    assert copies.startswith(
        "1,204 copies answered by version 3 of p, which nobody sees · 24 differ"
    )
    assert copies.endswith("31 left out while the server was busy · most often tabby → tiger cat")
    # All of a chart is a second's: 20 answers in 5 seconds are 4, and 5 errors are 1.
    ticks = tab.run(
        "[...document.querySelectorAll('#throughput .ticks span')].map(each => each.innerText)"
    )
    assert ticks == ["5", "2.5", "0"]
    heights = [
        tab.run(f"document.querySelector('#throughput path.{kind}').getBBox().height")
        for kind in ("refused", "away", "fault")
    ]
    assert [round(each) for each in heights] == [20, 12, 8]  # of 100 for the 5
    words = "document.querySelector('#throughput svg').ariaLabel"
    assert tab.run(words).endswith("at most 4.0, 2 refused, 1 sent away as busy, 2 failed")
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, axe.script()) == []
    tab.look(1366, 768)
    assert rectangle(tab, ".top")["height"] < 60
    for width in (390, 320):
        tab.look(width=width, height=700)
        assert tab.run("document.documentElement.scrollWidth") <= width
        # Each figure of the table is seen, under its name.
        cells = "[...document.querySelectorAll('#series td')]"
        assert tab.run(f"{cells}.every(each => each.getBoundingClientRect().right <= {width})")
        shown = f"{cells}.map(each => getComputedStyle(each, '::before').content)"
        assert tab.run(shown)[-2:] == ['"Busy"', '"Failed"']
        assert axe.violations(tab, axe.script()) == []


def test_few_answers_have_a_median(tab: Tab, page: Behind) -> None:
    for answered, p50, shown in (
        (0, "null", "median of Pictures \N{EN DASH}"),
        (1, "7", "median of Pictures 7.0 ms"),
        (7, "42", "median of Pictures 42 ms"),
    ):
        open_played(tab, f"http://localhost:{page.http_port}/", f"""
            if (path.startsWith('page/live.json')) return changed(real(path, options), told => {{
              const one = {{ pipeline: '{PIPELINE}', version: '1', protocol: 'http', per_second: 0,
                answered: {answered}, refused: 0, busy: 0, failed: 0, p50_ms: {p50}, p95_ms: null,
                p99_ms: null, throughput: [] }};
              told.series = [one, {{ ...one, pipeline: 'detection', p50_ms: 99 }}];
            }});""")  # fmt: skip
        tile = "document.querySelector('#tiles div:nth-child(2)')"
        assert tab.until(f"{tile}?.innerText.replace(/\\s+/g, ' ')") == shown
    cells = tab.run("[...document.querySelectorAll('#series td.few')].map(each => each.innerText)")
    assert cells[:2] == ["\N{EN DASH}", "\N{EN DASH}"]
    # The figure is of the pipeline that is chosen.
    choose(tab, "detection")
    shown = "median of Detection 99 ms"
    tab.until(f"{tile}.innerText.replace(/\\s+/g, ' ') === '{shown}'")


def test_the_header_is_as_high_as_its_figures(tab: Tab, page: Behind) -> None:
    """However long they are, what leads elsewhere stays in the corner."""
    open_played(tab, f"http://localhost:{page.http_port}/", f"""
        if (path.startsWith('page/live.json')) return changed(real(path, options), told => {{
          told.in_flight = 18;
          told.queued = {{ picture: 31 }};
          told.series = [{{ pipeline: '{PIPELINE}', version: '1', protocol: 'http',
            per_second: 104.3, answered: 6000, refused: 130, busy: 12, failed: 3, p50_ms: 1060,
            p95_ms: 2000, p99_ms: 3000, throughput: told.over_time.failed }}];
        }});""")  # fmt: skip
    tab.until("document.querySelector('#tiles').innerText")
    for width, most in ((1366, 72), (1024, 104), (768, 104), (390, 180), (320, 205)):
        tab.look(width, 768)
        top, links = rectangle(tab, ".top"), rectangle(tab, ".top nav")
        assert top["height"] <= most, width
        assert links["bottom"] < 65 and links["right"] > width - 120, width
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_nothing_is_explained_that_is_not_there(tab: Tab, page: Behind) -> None:
    """Nor does the keyboard stop at it, once nothing is served any more."""
    explained = "document.querySelector('.scroll + .facts').checkVisibility()"
    open_played(tab, f"http://localhost:{page.http_port}/", """
        window.looks ??= 0;
        if (path.startsWith('page/served.json') && looks++)
          return changed(real(path, options), told => { told.pipelines = []; });
        if (path.startsWith('page/live.json'))
          return changed(real(path, options), told => { told.series = []; });""")  # fmt: skip
    assert tab.until(explained)
    tab.until("document.getElementById('series').hidden")
    assert not tab.run(explained)
    assert not tab.run("document.querySelector('.scroll').checkVisibility()")


def test_what_nobody_has_asked_is_listed_too(tab: Tab, page: Behind) -> None:
    """And how much was answered since the start."""
    open_played(tab, f"http://localhost:{page.http_port}/", """
        if (path.startsWith('page/live.json')) return changed(real(path, options), told => {
          const error = { at: 1, pipeline: 'detection', status: 400, why: 'bad_request' };
          Object.assign(told, { series: [], answered: 1204, unanswered: 3, slowest_ms: 690 });
          told.errors = [error, { ...error, at: 2 }, { ...error, at: 3, status: 503, why: 'busy' }];
        });""")  # fmt: skip
    tab.until("document.querySelectorAll('#series tbody tr').length > 2")
    rows = "[...document.querySelectorAll('#series tbody tr')]"
    nothing = ["\N{EN DASH}"]
    for row in tab.run(f"{rows}.map(each => [...each.cells].map(cell => cell.innerText))"):
        assert row[1:] == [*nothing * 2, "0.0", *nothing * 3, "0", "0", "0"]
    assert tab.text("#totals").startswith("1,204 answered, 3 not, since ")
    assert tab.text("#totals").endswith("; the slowest of these 15 minutes took 690 ms")
    assert tab.text("#errors li:last-child").endswith("Detection: bad request (400), 2 times")


def test_few_answers_are_taken_along_too(tab: Tab, tmp_path: Path) -> None:
    choose(tab, PIPELINE)
    tab.run("document.getElementById('beside').value = ''")
    assert tab.run("document.getElementById('saved').hidden")
    tab.run("""{ const real = window.fetch; let fails = 1;
        window.fetch = (path, options) => String(path).startsWith('classify') && fails-- > 0
          ? Promise.reject(new TypeError('gone')) : real(path, options); }""")
    tab.drop(*many(tmp_path, 2))
    tab.until("Boolean(document.querySelector('.labels') && document.querySelector('.error b'))")
    assert ["error" in each for each in json.loads(save(tab, "JSON"))] == [True, False]
    # What is asked again has one answer, in its place.
    tab.run("document.querySelector('.error button').click()")
    tab.until("document.querySelectorAll('.labels').length === 2")
    answers = json.loads(save(tab, "JSON"))
    assert [each["file"] for each in answers] == ["000.jpg", "001.jpg"]
    assert not any("error" in each for each in answers)
    assert save(tab, "CSV").count("\n") == 2 * 3 + 1
    tab.run("document.getElementById('forget').click()")
    assert tab.run("document.getElementById('saved').hidden")


def test_the_figures_lead_to_the_server(tab: Tab, tmp_path: Path) -> None:
    tab.look(1366, 768)
    tab.drop(*many(tmp_path, 3))
    tab.until("document.querySelectorAll('.labels').length === 6")
    assert rectangle(tab, "#server")["top"] > 768
    choose(tab, "detection")
    address = tab.run("location.href")
    tab.run("document.querySelector('a.tiles-say').click()")
    assert rectangle(tab, ".top")["bottom"] <= rectangle(tab, "#server")["top"] < 600
    assert tab.run("document.activeElement.id") == "server"
    assert tab.run("location.href") == address  # which keeps the pipeline


def test_what_is_asked_is_counted_at_once(tab: Tab, tmp_path: Path) -> None:
    """Not with the next look of every five seconds."""
    tab.until("document.querySelector('#tiles').innerText")
    tab.run("""{ const timer = window.setTimeout, real = window.fetch; window.looks = 0;
        window.setTimeout = (act, ms) => ms < 5000 ? timer(act, ms) : 0;
        window.fetch = (path, options) => {
          looks += String(path).startsWith('page/live.json');
          return real(path, options);
        }; }""")
    for _ in range(3):  # the first may be the end of a wait that began before
        before = tab.run("looks")
        tab.drop(pictures(tmp_path)[0])
        tab.until(f"looks > {before}")


def test_a_file_that_is_no_picture_is_no_fault_of_the_servers(tab: Tab, tmp_path: Path) -> None:
    tab.drop(pictures(tmp_path)[1])
    tab.until("document.querySelector('.error b')?.innerText")
    tab.until("document.querySelectorAll('#throughput path.refused').length")
    assert not tab.run("document.querySelectorAll('#throughput path.fault, #tiles .bad').length")
    when, why = tab.text("#errors li").split(maxsplit=1)
    assert re.match(r"\d+:\d\d", when) and why.endswith(": bad request (400)")


def test_the_classes_stand_below_the_question(tab: Tab) -> None:
    choose(tab, PIPELINE)
    known = "3 classes: low, middling, high"
    assert tab.text("#classes") == f"{known} · in the API: {PIPELINE}"
    choose(tab, "detection")
    assert tab.text("#classes") == ""


def test_the_title_and_a_warning_say_what_a_network_knows(tab: Tab, page: Behind) -> None:
    for count, network, title, warned in (
        (1000, "resnet50", "ImageNet", ""),
        (8, "things.onnx", "Pictures", ""),
        (8, "drawn", "Drawings", "Trained on drawings alone: the answers of Drawings show that "
         "everything works, not what is in a photo."),
    ):  # fmt: skip
        open_played(tab, f"http://localhost:{page.http_port}/", f"""
            if (path.startsWith('page/served.json')) return changed(real(path, options), told => {{
              told.pipelines = [{{ ...told.pipelines[0], untrained: false,
                networks: [{{ name: '{network}', weights: 'default' }}],
                classes: {{ count: {count}, first: ['mug'] }} }}];
            }});""")  # fmt: skip
        assert tab.text("#pipeline") == f"{title}, version 3"
        assert tab.text("#classes").startswith(f"{count:,} classes: mug …")
        assert tab.text("#untrained") == warned


def test_a_function_has_its_row_before_it_is_asked(tab: Tab, page: Behind) -> None:
    open_played(tab, f"http://localhost:{page.http_port}/", """
        if (path.startsWith('page/served.json')) return changed(real(path, options), told => {
          told.pipelines.push({ ...told.pipelines[0], model: 'mine', of: 'mine', main: false,
            kind: 'values' });
        });""")  # fmt: skip
    rows = "[...document.querySelectorAll('#series tbody th, #series tbody td:first-child')]"
    tab.until(f"{rows}.some(each => each.innerText === 'mine')")
    assert not tab.run("[...document.querySelectorAll('#pipeline option[value=mine]')].length")


def test_an_untrained_candidate_is_told_as_such(tab: Tab, page: Behind) -> None:
    open_played(tab, f"http://localhost:{page.http_port}/", """
        if (path.startsWith('page/served.json')) return changed(real(path, options), told => {
          for (const each of told.pipelines) each.untrained = each.candidate;
        });""")  # fmt: skip
    warned = tab.until("document.getElementById('untrained').innerText")
    assert warned.startswith("Untrained weights: the answers of the candidate of Pictures mean ")


def test_nothing_moves_once_it_is_known_what_is_served(tab: Tab, page: Behind) -> None:
    places = """['choose', 'pipeline', 'drop-say', 'ask-title', 'answers-title'].map(each => {
        const { left, top } = document.getElementById(each).getBoundingClientRect();
        return [each, each === 'pipeline' ? 0 : left, top]; })"""  # it lies right
    tab.look(1366, 768)
    open_played(tab, f"http://localhost:{page.http_port}/", f"""
        if (path.startsWith('page/served.json')) {{
          window.before ??= {places};
          return changed(real(path, options), told => {{
            for (const each of told.pipelines) each.untrained = false;
          }});
        }}""")  # fmt: skip
    tab.until("document.querySelectorAll('#samples button').length === 2")
    tab.until("document.querySelector('#tiles').innerText")
    assert tab.run("before") == tab.run(places)


def test_the_main_pipeline_comes_first_then_networks_of_the_users(tab: Tab) -> None:
    """As the server would name them: birds is not among those that the bundle brings."""
    tab.run("""{ const real = window.fetch;
        window.fetch = async (path, options) => {
          const answer = await real(path, options);
          if (!String(path).startsWith('page/served.json')) return answer;
          const told = await answer.json();
          const birds = { ...told.pipelines[0], model: 'birds', of: 'birds', main: false };
          return new Response(JSON.stringify({ ...told, pipelines: [...told.pipelines, birds] }));
        }; }""")
    offered = "[...document.getElementById('pipeline').options].map(each => each.value)"
    tab.until(f"{offered}.includes('birds')")
    assert tab.run(offered)[:2] == [PIPELINE, "birds"]


def test_a_reload_keeps_what_is_chosen(tab: Tab) -> None:
    chosen = "['pipeline', 'beside'].map(each => document.getElementById(each).value)"
    assert tab.run(chosen) == [PIPELINE, CANDIDATE]
    choices = (("beside", "", [PIPELINE, ""]), ("pipeline", "detection", ["detection", ""]))
    for select, value, expected in choices:
        choose(tab, value, select)
        assert tab.run(chosen) == expected
        tab.run("window.before = true")
        tab.do("Page.reload")
        tab.until("!window.before && document.getElementById('pipeline')?.disabled === false")
        assert tab.run(chosen) == expected


def test_the_page_comes_in_two_steps_and_once(page: Behind) -> None:
    """All modules are named at once, and nothing is sent again that has not changed."""
    _, headers, body = page.ask("GET", "/")
    named = set(re.findall(r'"module(?:preload)?" (?:href|src)="(page/[\w/]+\.js)"', body.decode()))
    assert named == {path[1:] for path in find_files() if path.endswith(".js")} - {"page/docs.js"}
    again = {"if-none-match": headers["etag"]}
    for path in ("/", "/docs", "/openapi.json"):
        _, headers, _ = page.ask("GET", path)
        had = {"if-none-match": headers["etag"]}
        status, _, body = page.ask("GET", path, None, had)
        assert (status, body) == (304, b"")
    assert page.ask("GET", "/page/main.js", None, again)[0] == 200


def test_areas_are_coloured_and_listed(tab: Tab, tmp_path: Path) -> None:
    street = tmp_path / "street.jpg"
    street.write_bytes(picture((200, 100)))
    find(tab, street, by="segmentation")
    assert tab.text(".answer h3") == "Segmentation, version 1"
    assert tab.text("#spoken") == (
        "street.jpg: background, 50 percent; car, 38 percent; <b>dog</b>, 13 percent"
    )
    listed = tab.run("[...document.querySelectorAll('.labels li')].map(each => each.innerText)")
    assert [each.split() for each in listed][1:] == [
        ["car", "37.5", "%"],
        ["<b>dog</b>", "12.5", "%"],
    ]
    marks = tab.run("""[...document.querySelectorAll('.labels .mark')].map(each =>
        getComputedStyle(each).backgroundColor.match(/[0-9]+/g).slice(0, 3).map(Number))""")
    canvas = "document.querySelector('.scene canvas').getContext('2d')"
    tab.until(f"{canvas}.getImageData(3, 0, 1, 1).data[3]")
    pixels = tab.run(f"[...{canvas}.getImageData(0, 0, 4, 2).data]")
    drawn = [pixels[at : at + 4] for at in range(0, 4 * 8, 4)]
    nothing, car, dog = [0, 0, 0, 0], [*marks[1], 255], [*marks[2], 255]
    assert drawn == [nothing, nothing, dog, car, nothing, nothing, car, car]
    seen = json.loads(
        tab.run("""JSON.stringify(['.scene img', '.scene canvas'].map(each =>
        document.querySelector(each).getBoundingClientRect()))""")
    )
    assert seen[0] == seen[1] and seen[0]["width"] == 2 * seen[0]["height"]
    # A class that is switched off is not coloured.
    tab.run("document.querySelector('.chips button').click()")
    tab.until(f"{canvas}.getImageData(3, 0, 1, 1).data[3] === 0")
    assert tab.text(".chips button") == "car"
    tab.run("document.querySelector('.chips button').click()")
    tab.run("document.querySelector('.copies button').click()")
    assert tab.text(".copies pre").endswith("/classify?model=segmentation'")
    assert axe.violations(tab, axe.script()) == []
    assert tab.console == []


def test_boxes_keep_nobody_out(tab: Tab, tmp_path: Path) -> None:
    street, empty = tmp_path / "street.jpg", tmp_path / "empty.png"
    street.write_bytes(picture((200, 100)))
    empty.write_bytes(picture((200, 100), "PNG"))
    find(tab, empty)
    assert tab.text("#spoken") == "empty.png: nothing found"
    assert tab.text(".answer .empty") == "Nothing found."
    find(tab, street)
    tab.until("document.querySelector('.frame')?.style.left")
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, axe.script()) == []
    tab.look(width=360, height=700)
    assert tab.run("document.documentElement.scrollWidth") <= 360


def test_the_keyboard_is_enough(tab: Tab, tmp_path: Path) -> None:
    reached = []
    for _ in range(6):
        tab.press("Tab", 9)
        reached.append(tab.run("document.activeElement.id || document.activeElement.innerText"))
    assert reached == ["Skip to the question", "Last minute", "API", "pipeline", "beside", "choose"]


def test_the_skip_link_lies_on_top(tab: Tab) -> None:
    tab.press("Tab", 9)
    link = rectangle(tab, ".skip")
    x, y = link["x"] + link["width"] / 2, link["y"] + link["height"] / 2
    assert tab.run(f"document.elementFromPoint({x}, {y}).className") == "skip"


def test_how_the_server_is_doing(tab: Tab, tmp_path: Path) -> None:
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelectorAll('.labels').length === 2")
    tab.until("document.querySelector('#health').innerText === 'Ready'")
    assert "version 3 live (up)" in tab.until("document.querySelector('#history').innerText")
    tab.until("document.querySelectorAll('#series tbody tr').length >= 2")


def test_rollouts_are_counted(page: Behind) -> None:
    status, _, body = page.ask("GET", "/metrics", None, None, page.connection(page.metrics_port))
    counted = f'bundle_rollouts_total{{pipeline="{PIPELINE}",how="rollout",outcome="stayed"}} 1\n'
    assert status == 200 and counted in body.decode()


def test_nothing_keeps_people_out(tab: Tab, tmp_path: Path) -> None:
    script = axe.script()
    for file in pictures(tmp_path):
        tab.drop(file)
    tab.until(
        "document.querySelectorAll('.labels').length === 2 && !document.querySelector('.busy')"
    )
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, script) == []
    tab.open(f"{tab.run('location.origin')}/docs")
    tab.until("document.querySelectorAll('details').length > 3")
    assert axe.violations(tab, script) == []


def test_it_fits_a_telephone(tab: Tab, tmp_path: Path) -> None:
    tab.look(width=360, height=700)
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelectorAll('.labels').length === 2")
    for width in (360, 320):
        tab.look(width=width, height=700)
        assert tab.run("document.documentElement.scrollWidth") <= width
        # What is chosen can be read to its end.
        for select in ("#pipeline", "#beside"):
            assert rectangle(tab, select)["width"] == rectangle(tab, ".ask-head")["width"]


def test_it_is_small_and_runs_nothing_from_elsewhere(page: Behind) -> None:
    status, headers, body = page.ask("GET", "/")
    assert (
        status == 200
        and "default-src 'none'; script-src 'self'" in (headers["content-security-policy"])
    )
    assert b"<style" not in body and b"style=" not in body and b"<script>" not in body
    assert sum(path.stat().st_size for path in find_files().values()) < 300_000


def test_with_keys_the_page_asks_for_one(repository: Path, tmp_path: Path) -> None:
    certificate.ensure(tmp_path, [])
    key = add(tmp_path / "api.keys", Client("ann"))
    options = [
        *("--address", "127.0.0.1", "--bind", "0.0.0.0", "--repository", str(repository)),
        *("--api-keys", str(tmp_path / "api.keys"), "--tls-folder", str(tmp_path)),
    ]
    tls = tmp_path / CERTIFICATE
    with (
        behind_the_door(tmp_path / "run", repository, [PIPELINE], options, tls) as server,
        browser(tmp_path, "--ignore-certificate-errors") as tab,
    ):
        tab.look()
        tab.open(f"https://localhost:{server.http_port}/")
        tab.until("document.getElementById('key').open")
        tab.run("document.getElementById('key-value').value = 'half'")
        tab.press("Escape", 27)  # which is left behind; the page asks again
        tab.until("document.getElementById('key-value').value === ''")
        assert tab.run("sessionStorage.length") == 0
        for given in ("ключ", "wrong", f" {key} "):
            tab.run(f"document.getElementById('key-value').value = {json.dumps(given)}")
            tab.run("document.querySelector('#key button').click()")
            if given == "ключ":  # which no header can carry
                assert tab.run("document.querySelector('#key-value:invalid') !== null")
            if given == "wrong":
                tab.until("!document.getElementById('key-wrong').hidden")
        tab.until("!document.getElementById('pipeline').disabled")
        tab.drop(pictures(tmp_path)[0])
        tab.until("document.querySelector('.labels')?.innerText")
        assert tab.run("JSON.stringify(localStorage)") == "{}"


# Questions that wait until the test lets them go: held.length of them, and whose they are.
HOLD = """{ const real = window.fetch; window.held = [];
    window.fetch = (path, options) => !String(path).startsWith('classify') ? real(path, options)
      : new Promise((done, failed) => {
          options.signal?.addEventListener('abort', () => failed(options.signal.reason));
          held.push({ name: options.body.name, go: () => real(path, options).then(done, failed) });
        }); }"""
RELEASE = "held.splice(0).forEach(each => each.go())"


def wait_for_held(tab: Tab, count: int) -> list[str]:
    tab.until(f"held.length === {count}")
    return list(tab.run("held.map(each => each.name)"))


def many(folder: Path, count: int) -> list[Path]:
    files = [folder / f"{number:03}.jpg" for number in range(count)]
    for file in files:
        file.write_bytes(HIGH)
    return files


def save(tab: Tab, form: str) -> str:
    """What the file would hold; window.savedAs is its name."""
    return str(
        tab.run(f"""{{ let saved; const make = URL.createObjectURL;
        HTMLAnchorElement.prototype.click = function() {{ window.savedAs = this.download; }};
        URL.createObjectURL = blob => {{ saved = blob; return make(blob); }};
        [...document.querySelectorAll('#saved button')]
          .find(each => each.innerText === '{form}').click();
        const text = new TextDecoder('utf-8', {{ ignoreBOM: true }});
        saved = saved.arrayBuffer().then(each => text.decode(each));
        URL.createObjectURL = make; saved; }}""")
    )


def test_of_many_pictures_those_on_screen_come_first(tab: Tab, tmp_path: Path) -> None:
    choose(tab, PIPELINE)
    tab.run("document.getElementById('beside').value = ''")
    tab.run(HOLD)
    tab.drop(*many(tmp_path, 500))
    assert wait_for_held(tab, 4) == ["000.jpg", "001.jpg", "002.jpg", "003.jpg"]
    tab.run("document.querySelector('.grid').scrollTo(0, 1e6)")
    tab.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.run(RELEASE)
    tab.until("document.querySelector('.far').innerText.startsWith('4 of 500')")
    assert all(name > "400.jpg" for name in wait_for_held(tab, 4))
    # It stops within a moment: what is asked ends, and nothing more is.
    tab.run("[...document.querySelectorAll('.many-head button')][0].click()")
    assert tab.text(".far") == "4 of 500 · stopped"
    tab.run(RELEASE)
    assert tab.run("held.length") == 0 and tab.text(".far") == "4 of 500 · stopped"
    # A second click on the same place does not begin again.
    tab.run("[...document.querySelectorAll('.many-head button')][0].click()")
    assert tab.text(".far") == "4 of 500 · stopped" and tab.text(".again") == "Ask the other 496"
    assert tab.text(".many .facts") == "untrained weights Pictures, version 3: 4 high"
    said = tab.run("[...document.querySelectorAll('.grid .said')].map(each => each.innerText)")
    assert sorted({*said}) == ["high 100\N{NO-BREAK SPACE}%", "not asked"]
    assert said.count("not asked") == 496
    rows = [line.split(",") for line in save(tab, "CSV").splitlines()[1:]]
    files = [f"{number:03}.jpg" for number in range(500)]
    assert list(dict.fromkeys(row[0] for row in rows)) == files
    assert [row[7] for row in rows].count("not asked") == 496
    assert tab.run("document.documentElement.scrollHeight") < 3000
    # The rest may be asked after all.
    press(tab, "Ask the other 496")
    assert len(wait_for_held(tab, 4)) == 4 and tab.text(".far") == "4 of 500"


def press(tab: Tab, name: str) -> None:
    """A button of the grid's."""
    tab.run(f"""[...document.querySelectorAll('.many button:not([hidden])')]
        .find(each => each.innerText === '{name}').click()""")


def test_pictures_that_found_no_server_are_asked_again(tab: Tab, tmp_path: Path) -> None:
    tab.run("""{ const real = window.fetch; window.fails = 7;
        window.fetch = (path, options) => String(path).startsWith('classify') && fails-- > 0
          ? Promise.reject(new TypeError('gone')) : real(path, options); }""")
    tab.drop(*many(tmp_path, 10))
    tab.until("document.querySelector('.far')?.innerText.startsWith('13 of 20 answered, 7 not')")
    assert json.loads(save(tab, "JSON"))[0]["error"] == "The server does not answer"
    press(tab, tab.text(".again"))
    tab.until("document.querySelector('.many .facts').innerText.includes('same 10, differs 0')")
    assert not [each for each in json.loads(save(tab, "JSON")) if "error" in each]
    assert tab.run("document.querySelector('.again').hidden")


def test_many_answers_are_summed_up_and_taken_along(tab: Tab, tmp_path: Path) -> None:
    choose(tab, PIPELINE)
    tab.run("document.getElementById('beside').value = ''")
    broken = tmp_path / "=1+1.jpg"
    broken.write_bytes(b"text")
    tab.drop(*many(tmp_path, 11), broken)
    tab.until("document.querySelector('.far').innerText.startsWith('11 of 12 answered, 1 not')")
    why = "Not a JPEG"
    assert tab.text(".many .facts") == "untrained weights Pictures, version 3: 11 high"
    assert tab.text(".faults") == f"1 without an answer: {why}"
    assert tab.text(".grid li:last-child .said") == why
    assert tab.text(".grid .file") == "000.jpg"
    assert tab.text("#saved").split() == ["CSV", "JSON"]
    assert not count_shown(tab, ".many-head button:first-of-type")  # Stop
    head, *lines = save(tab, "CSV").splitlines()
    named = "file,pipeline,model,version,rank,label,probability,error,class,ms,share"
    assert head == f"\ufeff{named},left,top,right,bottom"
    # By both of its names: the page's, and that of the API.
    assert lines[0].startswith(f"000.jpg,Pictures,{PIPELINE},3,1,high,")
    high = [line.split(",") for line in lines[:3]]
    assert high[0][8] == "2" and float(high[0][9]) > 0
    assert [row[4] for row in high] == ["1", "2", "3"] and high[0][5] == "high"
    assert tab.run("savedAs") == "answers-pictures.csv"
    assert "'=1+1.jpg" in lines[-1] and len(lines) == 11 * 3 + 1
    answers = json.loads(save(tab, "JSON"))
    assert len(answers) == 12 and [each for each in answers if "error" in each]
    # What was answered, and when, not asked again.
    tab.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
    tab.run("document.querySelector('.grid button').click()")
    assert tab.text("#whole[open] .labels li .name") == "high"
    shown = float(tab.text("#whole .where summary").split()[0])
    assert abs(shown - float(high[0][9])) <= 0.5
    for dark in (False, True):
        tab.look(dark=dark)
        assert axe.violations(tab, axe.script()) == []
    tab.look(width=360, height=700)
    for x, is_open in ((180, True), (2, False)):  # in it, and beside it
        for kind in ("mousePressed", "mouseReleased"):
            tab.do("Input.dispatchMouseEvent", type=kind, x=x, y=350, button="left", clickCount=1)
        assert tab.run("document.getElementById('whole').open") == is_open
    assert tab.run("document.documentElement.scrollWidth") <= 360
    # The wheel goes on below so few.
    assert tab.run("getComputedStyle(document.querySelector('.grid')).overflowY") == "visible"


def test_answers_are_credited_to_the_version_that_gave_them(
    tab: Tab, page: Behind, tmp_path: Path
) -> None:
    """Another one is live from the seventh on; the door tells so one look later."""
    open_played(tab, f"http://localhost:{page.http_port}/", """
        window.given ??= 0; window.looks ??= 0;
        if (path.startsWith('classify')) {
          const spans = [{ name: 'picture', version: ++given > 6 ? '2' : '1', start_ms: 0, ms: 1 }];
          return changed(real(path, options), told => { told.timings = { total_ms: 2, spans }; });
        }
        if (path.startsWith('page/served.json')) return changed(real(path, options), told => {
          if (given > 6 && looks++) Object.assign(
            told.pipelines[0], { version: '8', steps: { picture: '2' } });
        });""")  # fmt: skip
    tab.run("document.getElementById('beside').value = ''")
    tab.drop(*many(tmp_path, 10))
    tab.until("document.querySelector('.far')?.innerText.startsWith('10 of 10 answered')")
    rows = [line.split(",") for line in save(tab, "CSV").splitlines()[1:]]
    assert [row[3] for row in rows[::3]] == ["3"] * 6 + ["8"] * 4
    lines = [f"untrained weights Pictures, version {each}" for each in ("3: 6 high", "8: 4 high")]
    assert tab.text(".many .facts").split("\n") == lines
    tab.run("document.querySelector('.grid li:last-child button').click()")
    assert tab.text("#whole h3") == "Pictures, version 8"


def test_where_things_are_is_taken_along(tab: Tab, tmp_path: Path) -> None:
    choose(tab, "detection")
    choose(tab, "segmentation", "beside")
    files = [tmp_path / f"{number}.jpg" for number in range(9)]
    for file in files:
        file.write_bytes(picture((200, 100)))
    tab.drop(*files)
    tab.until("document.querySelector('.far')?.innerText.startsWith('18 of 18')")
    rows = [line.split(",") for line in save(tab, "CSV").splitlines()[1:]]
    assert [row[5:7] + row[10:] for row in rows[:6]] == [
        ["car", "0.91", "", "20", "10", "120", "90"],
        ["<b>dog</b>", "0.62", "", "100", "40", "200", "100"],
        ["car", "0.4", "", "0", "0", "50", "50"],
        ["background", "0.5", "0.5", "", "", "", ""],
        ["car", "0.375", "0.375", "", "", "", ""],
        ["<b>dog</b>", "0.125", "0.125", "", "", "", ""],
    ]
    # What is shown: no more than from the chosen score on.
    slide(tab, 0.7)
    boxes, areas, *_ = json.loads(save(tab, "JSON"))
    corners = {"left": 20, "top": 10, "right": 120, "bottom": 90}
    assert [each["box"] for each in boxes["labels"]] == [corners]
    assert [each["share"] for each in areas["labels"]] == [0.5, 0.375, 0.125]
    tab.run("document.querySelector('.grid button').click()")
    assert tab.text("#whole .least output") == "70 %" and count_shown(tab, "#whole .frame") == 1
    tab.run("document.getElementById('whole').close()")
    slide(tab, 0.95)
    assert tab.text(".said").startswith("Nothing scores 95\N{NO-BREAK SPACE}% or more · ")
    assert tab.text(".many .facts").startswith("Detection, version 1: 9 nothing found")
    assert axe.violations(tab, axe.script()) == []


def test_versions_are_compared_and_looking_does_not_count(tab: Tab, tmp_path: Path) -> None:
    tab.drop(*many(tmp_path, 10))
    tab.until("document.querySelector('.far').innerText.startsWith('20 of 20')")
    versions = [f"untrained weights Pictures, version {each}: 10 high" for each in (3, 7)]
    tab.until("document.getElementById('tally').innerText.startsWith('same 10')")
    assert tab.text(".many .facts").split("\n") == [*versions, "same 10, differs 0"]
    tab.run("document.querySelector('.grid button').click()")
    tab.until("document.querySelectorAll('#whole[open] h3 .badge').length === 2")
    assert tab.text("#tally") == "same 10 · differs 0"
    tab.run("document.getElementById('whole-close').click()")


def test_pipelines_with_other_classes_are_not_compared(tab: Tab, tmp_path: Path) -> None:
    choose(tab, "detection", "beside")
    files = [tmp_path / f"{number}.jpg" for number in range(10)]
    for file in files:
        file.write_bytes(picture((200, 100)))
    for dropped in (files[:1], files):
        tab.drop(*dropped)
        tab.until("document.querySelectorAll('.card .told').length === 2")
    tab.until("document.querySelector('.far')?.innerText.startsWith('20 of 20')")
    first, second = tab.text(".many .facts").split("\n")
    assert first.startswith("untrained weights Pictures, version 3: 10 ") and "car" not in first
    assert second == "Detection, version 1: 10 car"
    assert tab.text("#tally") == "" and not tab.run("document.querySelector('h3 .badge')")


def test_clear_ends_what_is_asked(tab: Tab, tmp_path: Path) -> None:
    tab.run(HOLD)
    tab.drop(*many(tmp_path, 6))
    wait_for_held(tab, 4)
    tab.run("document.getElementById('forget').click()")
    tab.run(RELEASE)
    tab.drop(pictures(tmp_path)[0])
    assert wait_for_held(tab, 1) == ["high.jpg"]
    tab.run(RELEASE)
    assert tab.run("document.querySelectorAll('.card').length") == 1


def test_a_dropped_folder_is_looked_into(tab: Tab, tmp_path: Path) -> None:
    below = tmp_path / "photos" / "more"
    below.mkdir(parents=True)
    pictures(tmp_path / "photos")
    (below / "deep.jpg").write_bytes(HIGH)
    tab.drop(tmp_path / "photos")
    tab.until("document.querySelectorAll('.card').length === 3")
    names = tab.run(
        "[...document.querySelectorAll('.seen figcaption')].map(each => each.innerText)"
    )
    assert [each.split()[0] for each in names] == ["broken.jpg", "high.jpg", "deep.jpg"]


def test_a_busy_server_is_asked_again(tab: Tab, tmp_path: Path) -> None:
    """Refused as keys.py and limits.py refuse; then let through."""
    tab.run("""{ const real = window.fetch; window.refusals = 3;
        window.fetch = (path, options) => String(path).startsWith('classify') && refusals-- > 0
          ? Promise.resolve(new Response('{"error": "busy"}', refusals ? { status: 429,
              headers: { 'retry-after': '0.05' } } : { status: 503 })) // as of what stops
          : real(path, options); }""")
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelector('.labels')?.innerText")
    assert tab.run("refusals") < 0
    # Until told otherwise: a comparison of the first picture may ask meanwhile.
    tab.run("""{ const real = window.fetch; window.fails = true;
        window.fetch = (path, options) => String(path).startsWith('classify') && fails
          ? Promise.reject(new TypeError('gone')) : real(path, options); }""")
    tab.run("document.getElementById('forget').click()")
    tab.drop(pictures(tmp_path)[0])
    tab.until("document.querySelector('.error button')?.innerText")
    tab.run("fails = false; document.querySelector('.error button').click()")
    tab.until("document.querySelector('.labels')?.innerText")


def open_as(tab: Tab, page: Behind, model: str, kind: str, answers: str) -> None:
    """As if this server had one pipeline, of that kind."""
    open_played(tab, f"http://localhost:{page.http_port}/", f"""
        if (path.startsWith('page/served.json')) return changed(real(path, options), told => {{
          told.pipelines = [{{ ...told.pipelines[0], model: '{model}', of: '{model}',
            kind: '{kind}', untrained: false }}];
        }});
        {answers}""")  # fmt: skip


def test_a_text_is_typed_and_sent_by_the_keyboard(tab: Tab, page: Behind, tmp_path: Path) -> None:
    spans = [{"name": "sentiment_preprocess", "start_ms": 1, "ms": 2}]
    answer = {"label": "positive", "score": 0.9, "timings": {"total_ms": 4, "spans": spans}}
    open_as(
        tab,
        page,
        "sentiment_ensemble",
        "text",
        f"""
        if (path.startsWith('sentiment')) return Response.json({json.dumps(answer)});""",
    )
    assert tab.text("#ask-title") == "Positive or negative?"
    assert "Ctrl+Enter" in tab.text("#text")
    tab.run("document.querySelector('#text button').click()")
    assert tab.text("#note") == "Type a sentence first."
    tab.run("document.getElementById('words').value = 'What a day!'")
    tab.run("""document.getElementById('words').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', ctrlKey: true }))""")
    tab.until("document.querySelector('.spans')?.innerText")
    assert tab.text(".labels li").split("\n") == ["positive", "90.0 %"]
    assert "Tokenise" in tab.text(".spans") and "Decode" not in tab.text(".spans")
    # What would name a file, where --data does not say that it is a text.
    tab.run("document.getElementById('words').value = '@home'")
    tab.run("document.querySelector('#text button').click()")
    tab.until("document.querySelectorAll('.copies').length === 2")
    tab.run("document.querySelector('.copies button').click()")
    assert tab.text(".copies pre").startswith("curl --data-raw '@home' ")
    tab.run("document.getElementById('words').focus()")
    tab.run("document.execCommand('insertText', false, 'a'.repeat(20_000))")
    assert tab.text("#note") == "It ends after 20,000 letters, the most that are taken."
    tab.press("Backspace", 8)
    assert tab.text("#note") == ""
    tab.drop(pictures(tmp_path)[0])
    assert tab.until("document.getElementById('note').innerText").startswith("Sentiment takes a te")


# As a model of tables would answer: with the number of the request.
CONFIG = {"input": [{"dims": ["2"]}], "output": [{"name": "OUTPUT", "dims": ["1"]}],
          "max_batch_size": 1024, "parameters": {"columns": {"string_value": "[]"}}}  # fmt: skip
ROWS = f"""
    if (path.endsWith('/config')) return Response.json({json.dumps(CONFIG)});
    if (path.endsWith('/infer')) {{
      const head = options.headers['inference-header-content-length'];
      const {{ inputs: [{{ shape }}] }} = JSON.parse(await options.body.slice(0, head).text());
      (window.sent ??= []).push(shape[0]);
      return Response.json({{ outputs: [{{ data: new Array(shape[0]).fill(sent.length) }}] }});
    }}"""


def test_a_comma_that_may_be_between_thousands_is_refused(
    tab: Tab, page: Behind, tmp_path: Path
) -> None:
    """Unless another cell shows what commas are there."""
    open_as(tab, page, "flowers", "rows", ROWS)
    (rows := tmp_path / "rows.csv").write_text("34\t52,500\n")
    tab.drop(rows)
    tab.until("document.querySelector('.answer .error')?.innerText")
    cause = "Line 1: “52,500” may be 52500 or 52.5.\nWrite it without the comma, or with a point."
    assert tab.text(".answer .error") == cause
    rows.write_text("1,5;52,500\n")
    tab.drop(rows)
    tab.until("document.querySelector('.copies button')?.innerText")
    tab.run("document.querySelector('.copies button').click()")
    assert '"data":[1.5,52.5]' in tab.text(".copies pre")


@pytest.mark.parametrize(
    ("row", "fault"),
    [("1,Infinity", "not a number"), ("0x1F,2", "not a number"), ("1,1e39", "beyond float32")],
)
def test_what_is_no_number_for_make_ask_is_none_here(
    row: str, fault: str, tab: Tab, page: Behind, tmp_path: Path
) -> None:
    open_as(tab, page, "flowers", "rows", ROWS)
    (rows := tmp_path / "rows.csv").write_text(f"1,2\n{row}\n")
    tab.drop(rows)
    tab.until("document.querySelector('.answer .error')?.innerText")
    assert fault in tab.text(".answer .error")
    rows.write_text("1,2\n,\n3,4\n")  # the second has no numbers, and is one of the rows
    tab.drop(rows)
    tab.until("document.querySelector('#spoken').innerText === 'rows.csv: 3 answers'")


def test_many_rows_are_sent_in_parts(tab: Tab, page: Behind, tmp_path: Path) -> None:
    open_as(tab, page, "flowers", "rows", ROWS)
    (rows := tmp_path / "rows.csv").write_text("1,2\n" * 3000)
    tab.drop(rows)
    tab.until("document.querySelector('#spoken').innerText === 'rows.csv: 3000 answers'")
    assert tab.run("sent") == [1024, 1024, 952]
    assert tab.run("document.querySelectorAll('.card tbody tr').length") == 3000
    assert not tab.run("document.querySelector('.copies').innerText === 'Copy as'")


def test_what_cannot_be_asked_is_said(tab: Tab, page: Behind, tmp_path: Path) -> None:
    tab.run("""{ const data = new DataTransfer();
        data.setData('text/uri-list', 'http://localhost/mug.jpg');
        document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true })); }""")
    tab.until("document.getElementById('note').innerText.includes('save the picture first')")
    large = tmp_path / "large.jpg"
    with large.open("wb") as file:
        file.truncate(71_000_000)
    tab.drop(large)
    assert tab.until("document.querySelector('.error b')?.innerText") == (
        "It has 71 MB, and this server takes 64 MB at once."
    )


def test_the_api_is_told_whole_and_under_its_address(tab: Tab, page: Behind) -> None:
    tab.open(f"http://localhost:{page.http_port}/docs")
    tab.until("document.querySelectorAll('details').length > 3")
    tab.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    lines = tab.run("[...document.querySelectorAll('details p')].map(each => each.innerText)")
    assert not [line for line in lines if re.fullmatch(r"\d+:\s*(undefined)?", line)]
    # As wide as the window, and no wider.
    for width in (320, 1366, 3840):
        tab.look(width, 2160)
        last = rectangle(tab, ".top nav a:last-child")
        assert width - 120 < last["right"] <= width
        assert width - 120 < rectangle(tab, "#paths")["right"] <= width
        assert tab.run("document.documentElement.scrollWidth") <= width
    examples = tab.run("[...document.querySelectorAll('pre')].map(each => each.innerText).join()")
    # What of it is there.
    loaded = tab.run("[...document.querySelectorAll('#loaded li')].map(each => each.innerText)")
    assert len(loaded) == 4
    for name in (PIPELINE, "detection"):
        assert any(each.startswith(name) and f"/classify?model={name}'" in each for each in loaded)
    assert 'open("photo.jpg", "rb").read()  # it lies beside this program' in examples
    calls = tab.run("[...document.querySelectorAll('summary')].map(each => each.innerText)")
    (missing,) = [call for call in calls if "not loaded" in call]
    assert "/sentiment" in missing
    assert "localhost:8000" not in examples and f"localhost:{page.http_port}/classify" in examples
    assert f"/v2/models/{PIPELINE}/infer" in examples
