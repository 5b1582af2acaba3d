import io
import os
import random
import subprocess
import sys
import time
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmark.torture.odd_pictures import (
    CATALOGUE,
    FILES,
    TURNS,
    Odd,
    cmyk_jpeg,
    compute_expected_pixels,
    difference,
    flat_png,
    frames,
    landscape,
    progressive_jpeg_of_scans,
    save,
    scene,
    turn_scene,
)
from bundle_serving.pictures import PictureError, Transform, check_together, to_pixels
from scripts.intake import metadata, plain
from scripts.intake.plain import crop
from scripts.intake.plain import pixels as pixels_of_the_original
from tests.project import ROOT, picture

# pytest shows warnings that the module under test has silenced.
pytestmark = pytest.mark.filterwarnings("ignore:::PIL")

HOW = Transform(resize=256, crop=224)
# No picture may hold up its neighbours for so many seconds of processor time.
PATIENCE = 10

# The catalogue of odd pictures.


@pytest.mark.parametrize("odd", CATALOGUE, ids=str)
def test_an_odd_picture_is_answered_or_refused(odd: Odd, capfd: pytest.CaptureFixture[str]) -> None:
    data = odd.data()
    began = time.process_time()
    if odd.refusal is None:
        pixels = to_pixels(data, HOW)
        assert pixels.shape == (3, 224, 224) and pixels.dtype == np.uint8
        if odd.shows is not None:
            assert difference(pixels, compute_expected_pixels(odd.shows())).mean() <= odd.within
    else:
        with pytest.raises(PictureError) as refused:
            to_pixels(data, HOW)
        assert odd.refusal in str(refused.value)
        check_wording(str(refused.value))
    assert time.process_time() - began < PATIENCE
    assert capfd.readouterr().err == ""


def check_wording(message: str) -> None:
    """One line that says what happened, and behind the semicolon what to do."""
    assert message.isprintable() and len(message) < 300
    cause, _, remedy = message.rpartition("; ")
    assert len(cause) > 20
    assert "send" in remedy


def test_names_in_the_catalogue_are_unique() -> None:
    assert len({odd.name for odd in CATALOGUE}) == len(CATALOGUE) >= 55


def in_an_interpreter_of_its_own(script: str) -> str:
    """pytest keeps warnings and log lines to itself, and its memory has seen larger pictures."""
    preamble = """
import contextlib, resource
from bundle_serving.pictures import PictureError, Transform, check_together, to_pixels
from benchmark.torture.odd_pictures import CATALOGUE, FILES, attacks, bombs

def read(data):
    with contextlib.suppress(PictureError):
        to_pixels(data, Transform(resize=256, crop=224))
"""
    done = subprocess.run(
        [sys.executable, "-c", preamble + script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'serving'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_nothing_is_printed_about_damaged_metadata() -> None:
    printed = in_an_interpreter_of_its_own("""
for odd in CATALOGUE:
    if "TIFF" in odd.name or "EXIF" in odd.name or "orientation" in odd.name:
        read(odd.data())
        print(odd.name)
""")
    assert len(printed.splitlines()) > 50


@pytest.mark.parametrize("group", ["bombs", "attacks"])
def test_hostile_files_cost_little_memory(group: str) -> None:
    printed = in_an_interpreter_of_its_own(f"""
for file in FILES.values():
    read(file())
hostile = [(odd.name, odd.data()) for odd in {group}()]
for name, data in [("", b""), *hostile]:
    read(data)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, name)
""")
    before, *after = (int(line.split()[0]) for line in printed.splitlines())
    assert len(after) >= 10 and max(after) - before < 64, printed


# JPEGs decoded at a part of their size, and pictures that a camera turned.


@pytest.mark.parametrize(
    ("mode", "format_", "options"),
    [
        ("RGB", "JPEG", {"progressive": True}),
        ("L", "JPEG", {}),
        ("CMYK", "JPEG", {}),
        ("RGB", "MPO", {"save_all": True, "append_images": [Image.new("RGB", (9, 9))]}),
    ],
    ids=["progressive", "grey", "CMYK", "MPO"],
)
def test_reduced_decoding_of_every_kind_of_jpeg(
    mode: str, format_: str, options: dict[str, Any]
) -> None:
    """Measured: 0.86 levels in the mean of colours, 0.61 of CMYK, 0.43 of grey."""
    file = save(landscape().convert(mode), format_, quality=90, **options)
    whole = to_pixels(file, Transform(256, 224, decode="full"))
    assert 0 < difference(to_pixels(file, HOW), whole).mean() < 1.2


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format_", ["PNG", "WEBP", "TIFF"])
def test_every_format_is_turned_once(format_: str, orientation: int) -> None:
    options = {"lossless": True} if format_ == "WEBP" else {}
    pixels = to_pixels(turn_scene(orientation, format_, **options), HOW)
    assert difference(pixels, to_pixels(save(scene(), "PNG"), HOW)).max() == 0


# What goes in.


def test_every_kind_of_bytes_is_read() -> None:
    data = cmyk_jpeg()
    row = np.frombuffer(data, np.uint8)
    every_second = np.repeat(row, 2)[::2]
    pixels = to_pixels(data, HOW)
    kinds: list[Any] = [memoryview(data), bytearray(data), row, every_second]
    for same in kinds:
        assert np.array_equal(to_pixels(same, HOW), pixels)


@pytest.mark.parametrize("begin", [b"no picture", b"BM", b"\xff\xd8\xff", b"RIFF....WEBP"])
def test_a_row_is_copied_once(begin: bytes) -> None:
    row = np.zeros(30_000_000, np.uint8)
    row[: len(begin)] = np.frombuffer(begin, np.uint8)
    tracemalloc.start()
    try:
        with pytest.raises(PictureError):
            to_pixels(row, HOW)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * row.nbytes
    finally:
        tracemalloc.stop()


def test_the_pixel_limit_is_the_callers() -> None:
    how = Transform(256, 224, max_megapixels=0.01)
    assert to_pixels(flat_png((100, 100)), how).max() == 0
    with pytest.raises(PictureError, match="has 101x100 pixels, more than the limit"):
        to_pixels(flat_png((101, 100)), how)


def test_a_transform_survives_its_file(tmp_path: Path) -> None:
    how = Transform(342, 299, "bicubic", "full", 12.5)
    (tmp_path / "transform.json").write_text(how.dump())
    assert Transform.load(tmp_path / "transform.json") == how


# Damage at random.


def damaged(file: bytes, random_: random.Random) -> bytes:
    """A few bytes changed, mostly in the headers; sometimes a piece repeated, or the end gone."""
    data = bytearray(file)
    for _ in range(random_.choice((1, 2, 8, 40))):
        place = random_.randrange(random_.choice((len(data), min(len(data), 600))))
        data[place] = random_.choice((0, 255, random_.randrange(256)))
    if random_.random() < 0.3:
        start = random_.randrange(len(data))
        piece = bytes(data[start : start + random_.randrange(200)])
        data[start:start] = piece * random_.choice((1, 3, 1000))
    if random_.random() < 0.2:
        del data[random_.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.parametrize("kind", [*FILES, "CMYK JPEG", "turned TIFF", "GIF film", "PNG film"])
def test_damage_ends_in_pixels_or_a_refusal(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    others = {
        "CMYK JPEG": cmyk_jpeg,
        "turned TIFF": lambda: turn_scene(6, "TIFF"),
        "GIF film": lambda: frames("GIF"),
        "PNG film": lambda: frames("PNG"),
    }
    file = (FILES | others)[kind]()
    random_ = random.Random(kind)
    for _ in range(30):
        data = damaged(file, random_)
        began = time.process_time()
        try:
            assert to_pixels(data, HOW).shape == (3, 224, 224)
        except PictureError as refused:
            check_wording(str(refused))
        assert time.process_time() - began < PATIENCE
    assert capfd.readouterr().err == ""


def test_many_pictures_in_one_request_are_bounded_together() -> None:
    how = Transform(resize=256, crop=224, max_megapixels=0.25)
    small, large = picture((100, 100)), picture((300, 300))
    check_together([small] * 50, how)
    check_together([large] * 20, how)
    check_together([b"no picture"] * 50, how)
    check_together([flat_png((2000, 2000))] * 50, how)  # each is refused by itself
    with pytest.raises(PictureError, match=r"2 megapixels together.* the limit is 2; send fewer"):
        check_together([large] * 23, how)
    progressive = io.BytesIO()
    Image.open(io.BytesIO(large)).save(progressive, "JPEG", progressive=True)
    check_together([progressive.getvalue()] * 11, how)
    with pytest.raises(PictureError, match="a progressive JPEG counts 2 times"):
        check_together([progressive.getvalue()] * 12, how)
    whole = picture((300, 300), kind="PNG")
    check_together([whole] * 3, how)
    for more, otherwise in (([whole] * 4, how), ([large] * 4, replace(how, decode="full"))):
        with pytest.raises(PictureError, match=r"what is not a JPEG 6 times.*raise MAX_MEGAPIXELS"):
            check_together(more, otherwise)
    scans = progressive_jpeg_of_scans(240, 50)
    with pytest.raises(PictureError, match=r"51 scans.* save it as a baseline JPEG"):
        to_pixels(scans, replace(how, max_megapixels=0.1))
    assert to_pixels(scans, replace(how, max_megapixels=1)).shape == (3, 224, 224)


@pytest.mark.parametrize(
    ("middle", "offsets"), [("even", (0, 0, 1, 2, 2, 2)), ("first", (0, 0, 1, 1, 2, 2))]
)
def test_the_crop_where_no_pixel_is_in_the_middle(middle: str, offsets: tuple[int, ...]) -> None:
    """As torchvision cuts it out, or as Hugging Face; and alike where the original is asked."""
    for spare, offset in enumerate(offsets):
        columns = np.arange(4 + spare, dtype=np.uint8)
        file = io.BytesIO()
        shown = Image.fromarray(np.broadcast_to(columns[None, :, None], (4, 4 + spare, 3)).copy())
        shown.save(file, "PNG")
        how = Transform(4, 4, decode="full", middle=middle)
        assert to_pixels(file.getvalue(), how)[0, 0, 0] == offset
        assert crop(shown, {**metadata.USUAL, **asdict(how)})[0, 0, 0] == offset


@pytest.mark.parametrize("what", ["16 bits", "a grey that is transparent", "a colour that is"])
def test_the_original_is_shown_what_is_served(what: str) -> None:
    levels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    grey, colours = Image.fromarray(levels), Image.fromarray(np.stack([levels] * 3, -1))
    file, how = io.BytesIO(), Transform(8, 8, decode="full")
    if what == "16 bits":
        Image.fromarray(levels.astype(np.uint16) * 257).save(file, "PNG")
    elif what == "a colour that is":
        colours.save(file, "PNG", transparency=(5, 5, 5))
    else:
        grey.save(file, "PNG", transparency=5)
    served = to_pixels(file.getvalue(), how)
    assert served[0, 0, 5] == (5 if what == "16 bits" else 255)
    shown = pixels_of_the_original(file.getvalue(), {**metadata.USUAL, **asdict(how)})
    assert (shown.transpose(2, 0, 1) == served).all()


@pytest.mark.parametrize("size", [(300, 400), (400, 300), (61, 250)])
@pytest.mark.parametrize(
    "sizes",
    [
        {"resize": 342, "crop": 299},  # of torchvision's Inception; 342 / 299 * 299 is less
        {"resize": 230, "crop": 224, "fit": "squash"},
        {"resize": 256, "crop": 224, "fit": "letterbox", "pad": 7},  # some is cut off
        {"resize": 237, "crop": (224, 320), "fit": "letterbox"},
    ],
)
def test_the_original_is_shown_as_much_as_is_served(
    sizes: dict[str, Any], size: tuple[int, int]
) -> None:
    file, how = save(scene().resize(size), "PNG"), Transform(**sizes, decode="full")
    shown = pixels_of_the_original(file, {**metadata.USUAL, **asdict(how)})
    assert (shown.transpose(2, 0, 1) == to_pixels(file, how)).all()


@pytest.mark.parametrize("size", [(4, 2000), (2001, 5), (640, 10)])
def test_of_a_strip_the_original_is_shown_the_middle(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    strip, how = Image.fromarray(noise), {**metadata.USUAL, **asdict(Transform(64, 56))}
    resize, sizes = Image.Image.resize, list[tuple[int, int]]()

    def note(picture: Image.Image, to: tuple[int, int], *how: Any) -> Image.Image:
        sizes.append(to)
        return resize(picture, to, *how)

    monkeypatch.setattr(Image.Image, "resize", note)
    shown = crop(strip, how)
    assert max(sizes[0]) < 65 * 64
    monkeypatch.setattr(plain, "WIDEST", sys.maxsize)
    assert np.abs(shown - crop(strip, how).astype(int)).max() <= 1


def test_a_program_is_shown_the_whole_strip() -> None:
    """As where it is served."""
    program = """
def preprocess(picture):
    return picture.crop((0, 0, 56, 56))
"""
    strip = Image.new("RGB", (1000, 2))
    strip.putpixel((0, 0), (255, 0, 0))
    how = {**metadata.USUAL, **asdict(Transform(64, 56)), "program": program}
    assert crop(strip, how)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("odd", [odd for odd in CATALOGUE if odd.name[:5] in ("32-bi", "float")])
def test_the_original_is_shown_what_is_served_of_deep_samples(odd: Odd) -> None:
    how = Transform(256, 224, decode="full")
    shown = pixels_of_the_original(odd.data(), {**metadata.USUAL, **asdict(how)})
    assert (shown.transpose(2, 0, 1) == to_pixels(odd.data(), how)).all()
