"""The bytes of a picture -> the pixels that a network is fed. Pure functions: no Triton here."""

from __future__ import annotations

import ctypes
import io
import json
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin, TiffTags, UnidentifiedImageError

from bundle_serving import own_steps, work
from bundle_serving.process.cores import Later

# What people photograph, scan and download; the bytes come from strangers. So out stay formats
# that Pillow hands to other programs (EPS) or decodes in Python (PPM: 20 s for a file of 30 MB),
# and JPEG 2000 (5 s for one of 30 MB, and 18 bytes of memory a pixel).
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP")
# Which of them may be decoded at reduced size; MPO is several JPEGs in a file.
REDUCED = ("JPEG", "MPO")

# Our own limit is checked right after the header is read, with a message that tells the remedy.
Image.MAX_IMAGE_PIXELS = None
# Without libtiff Pillow makes a Python object of every strip: 20 s for 2 million of no bytes.
TiffImagePlugin.READ_LIBTIFF = True
# Remarks about odd metadata help nobody here, and a stranger could fill the log with them: libtiff
# prints up to 4000 lines for one file, and of those Pillow silences only the warnings.
warnings.filterwarnings("ignore", module=r"PIL\.")
logging.getLogger("PIL").setLevel(logging.CRITICAL)
for libtiff in Path(Image.__file__).parents[1].glob("pillow.libs/libtiff-*.so*"):
    ctypes.CDLL(str(libtiff)).TIFFSetErrorHandler(None)

# How often Pillow may ask for more of a file. It walks through headers in Python, piece by piece:
# a file of nothing but empty pieces keeps the interpreter for half a second a megabyte. At each
# piece of a JPEG's EXIF it copies all that it has of it, and one of Photoshop's has 5,000 in it.
MAX_READS = 100_000
LARGE_PIECES = (b"Exif\0\0", b"Photoshop 3.0\0")
READS_OF_LARGE = 1000
# Of each number in a file's tags Pillow makes an object, of a fraction several: 13 s and 835 MB for
# a JPEG of 30 MB.
MAX_NUMBERS = 10_000
SAVE_ANEW = "open it in an image editor, and send what that saves as JPEG or PNG"
# Each scan of a progressive JPEG costs a pass over the whole picture, and may be 50 bytes long.
# Photographs have about ten: as many as a photograph of twice the largest size may have.
MAX_SCANS = 200
USUAL_SCANS = 10
MOST_WORK = 2.0
# While it is decoded and resized, a picture takes up to 16 bytes a pixel (as WEBP).
LARGE_MEGAPIXELS = 12
_one_large_at_a_time = threading.Lock()
# As of a JPEG. Each row costs something, however short it is: 4 s for a PNG of 1x50,000,000.
MOST_SIDE = 65_535
# torchvision resizes the whole picture before it crops; a strip of 1x20000 would take 5 GB.
MAX_ASPECT_RATIO = 64

TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class PictureError(ValueError):
    """The caller's bytes cannot be turned into pixels; the message says why and what would work."""


@dataclass(frozen=True)
class Transform:
    """torchvision's ImageClassification recipe (short side, centre crop), what other trainings do
    instead, and our two knobs."""

    resize: int  # the short side; of a crop that is not square, where the picture just covers it
    crop: int | Sequence[int]  # a side, or height and width
    interpolation: str = "bilinear"
    decode: str = "reduced"  # or "full": slower, and to the pixel what torchvision answers
    max_megapixels: float = 50.0
    # Or "squash": whatever its shape; "letterbox": all of it, with borders; "whole": all of it, as
    # it is, of which the crop says nothing.
    fit: str = "crop"
    pad: int = 0  # the level of the borders
    # Of two offsets that are as near the middle: the even one, as torchvision; or "first", as
    # Hugging Face.
    middle: str = "even"
    # If not, few of a large picture's pixels are looked at, and what is between is not rounded.
    antialias: bool = True
    longest: int | None = None  # of a whole one's sides, once it is resized
    # The text of a pre.py, which does all that instead, and where the packages are that it imports.
    program: str = ""
    packages: str = ""

    @property
    def is_reduced(self) -> bool:
        """What a program makes of a picture is not known: it gets all of it."""
        return self.decode == "reduced" and not self.program

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width."""
        height, width = (self.crop,) * 2 if isinstance(self.crop, int) else self.crop
        return height, width

    @property
    def target(self) -> tuple[int, int]:
        """Width and height that the picture is made to cover, to have, or to fit into."""
        height, width = self.sides
        short = min(height, width)
        return self.resize * width // short, self.resize * height // short

    def offset(self, spare: int) -> int:
        """Of the crop, where that many pixels are too many."""
        return spare // 2 if self.middle == "first" else round(spare / 2)

    @classmethod
    def load(cls, path: Path) -> Transform:
        packages = own_steps.packages_beside(path.parent)
        return cls(**json.loads(path.read_text()) | {"packages": packages})

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


# Of a picture: its bytes, width and height, the share of its width that was decoded, and what it is
# of all that a request may ask for.
Seen = Callable[[int, int, int, float, float], None]


def to_pixels(data: bytes | memoryview | NDArray[np.uint8], how: Transform) -> NDArray[np.uint8]:
    """The bytes of an image file -> uint8 [3, height, width]."""
    pixels: NDArray[np.uint8] = to_pixels_and_size(data, how)[0]
    return pixels


def to_pixels_and_size(
    data: bytes | memoryview | NDArray[np.uint8],
    how: Transform,
    seen: Seen | None = None,
    take: Callable[[float], None] | None = None,
) -> tuple[NDArray[Any], tuple[int, int]]:
    """And the height and width of the upright picture, as it was decoded. Without antialiasing,
    pixels are float32. `take` may put off a picture of that share (Later)."""
    raw = bytes(data)
    if not raw:
        raise PictureError("the picture is empty (0 bytes); send the bytes of an image file")
    try:
        with ExitStack() as turn:
            with Image.open(_Metered(raw), formats=FORMATS) as image:
                _refuse_bomb(image, raw, how.max_megapixels)
                width, height = image.size
                share = _megapixels_of_work(image, raw, how) / _most_together(how)
                if take:
                    take(share)
                if how.is_reduced:
                    # libjpeg scales by 1/2, 1/4 or 1/8 while it decodes. Twice the target is kept,
                    # so that the antialiasing filter still decides how the result looks.
                    image.draft(None, (2 * max(how.target), 2 * max(how.target)))
                turn.enter_context(_turn(image))
                if seen:
                    seen(len(raw), width, height, image.width / width, share)
                picture = decode(image)
            pixels = _resize_pixels(picture, how)
    except (PictureError, own_steps.StepFault, Later):
        raise
    except own_steps.Refused as why:
        raise PictureError(f"the picture is refused ({why}); send another one") from None
    except UnidentifiedImageError:
        raise PictureError(
            f"not a readable picture (it begins with {raw[:12]!r}), or a truncated one; "
            f"send the whole file of one of: {', '.join(FORMATS)}"
        ) from None
    except Exception as fault:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, IndexError and
        # more for broken files: whatever comes out of a stranger's bytes is the bytes' fault.
        cause = " ".join(str(fault).split())[:200] or type(fault).__name__
        raise PictureError(
            f"the picture is damaged or truncated ({cause}); send the whole, intact file"
        ) from None
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)), (picture.height, picture.width)


def check_together(pictures: Sequence[Any] | NDArray[Any], how: Transform) -> float:
    """Many pictures in one request may be large, but not all of them: nobody else is served
    meanwhile. The share of all that it may ask for; 0 of one, which has bounds of its own."""
    if len(pictures) == 1:
        return 0.0
    together = sum(_work_of(each, how) for each in pictures)
    if together > (most := _most_together(how)):
        raise PictureError(
            f"the pictures of this request have {together:.0f} megapixels together (a progressive "
            f"JPEG counts {work.PROGRESSIVE} times, many scans as more, and what is not a JPEG "
            f"{work.DECODED_WHOLE} times), and the limit is {most:g}; send fewer at once (or raise "
            "MAX_MEGAPIXELS)"
        )
    return together / most


def _most_together(how: Transform) -> float:
    return work.PICTURES * how.max_megapixels


def _work_of(data: Any, how: Transform) -> float:
    """Of a picture, in megapixels; of one that is refused by itself it is not much."""
    raw = bytes(data)
    try:
        with Image.open(_Metered(raw), formats=FORMATS) as image:
            _refuse_bomb(image, raw, how.max_megapixels)
            return _megapixels_of_work(image, raw, how)
    except Exception:
        return 0.0


def _megapixels_of_work(image: Image.Image, raw: bytes, how: Transform) -> float:
    if not how.is_reduced or image.format not in REDUCED:
        return _work(image, raw) * work.DECODED_WHOLE
    return _work(image, raw) * (work.PROGRESSIVE if image.info.get("progressive") else 1)


def _work(image: Image.Image, raw: bytes) -> float:
    megapixels = image.width * image.height / 1e6
    return megapixels * max(1.0, _scans(image, raw) / USUAL_SCANS)


def _scans(image: Image.Image, raw: bytes) -> int:
    return raw.count(b"\xff\xda") if image.info.get("progressive") else 1


class _Metered(io.BytesIO):
    """Bytes that a decoder may not read in crumbs for ever."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self.reads += READS_OF_LARGE if piece.startswith(LARGE_PIECES) else 1
        if self.reads > MAX_READS:
            raise PictureError(f"the file consists of too many tiny pieces; {SAVE_ANEW}")
        return piece


def _meter(size: int, load: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of Pillow's, for so many numbers of all tags of a directory."""

    def load_some(tags: Any, data: bytes, legacy_api: bool = True) -> Any:
        tags.numbers = getattr(tags, "numbers", 0) + len(data) // size
        if tags.numbers > MAX_NUMBERS:
            raise PictureError(f"the file has more than {MAX_NUMBERS} numbers as tags; {SAVE_ANEW}")
        return load(tags, data, legacy_api)

    return load_some


LOADERS = TiffImagePlugin.ImageFileDirectory_v2._load_dispatch
for kind, (size, load) in LOADERS.items():
    if kind not in (TiffTags.BYTE, TiffTags.ASCII, TiffTags.UNDEFINED):
        LOADERS[kind] = size, _meter(size, load)


def _refuse_bomb(image: Image.Image, raw: bytes, max_megapixels: float) -> None:
    tiff_tags = getattr(image, "tag_v2", {})
    # A tile is decoded whole, and may be larger than the picture that is cut out of it.
    tile = tiff_tags.get(TiffImagePlugin.TILEWIDTH, 0), tiff_tags.get(TiffImagePlugin.TILELENGTH, 0)
    for what, (width, height) in (("has", image.size), ("is stored in tiles of", tile)):
        if width * height > max_megapixels * 1e6:
            raise PictureError(
                f"the picture {what} {width}x{height} pixels, more than the limit of "
                f"{max_megapixels:g} megapixels; send a smaller one (or raise MAX_MEGAPIXELS)"
            )
        if max(width, height) > MOST_SIDE:
            raise PictureError(
                f"the picture {what} {width}x{height} pixels, and a side may have {MOST_SIDE}; "
                "send a part of it"
            )
    scans = _scans(image, raw)
    if scans > MAX_SCANS or _work(image, raw) > MOST_WORK * max_megapixels:
        raise PictureError(
            f"the JPEG has {scans} scans, more than the limit of {MAX_SCANS} (or fewer, of a large "
            "one); save it as a baseline JPEG and send that"
        )


def _turn(image: Image.Image) -> AbstractContextManager[Any]:
    """A process decodes one large picture at a time; small ones do not wait for it."""
    large = image.width * image.height > LARGE_MEGAPIXELS * 1e6
    return _one_large_at_a_time if large else nullcontext()


def decode(image: Image.Image) -> Image.Image:
    """The picture as RGB, upright."""
    image.load()
    # Only now: of a TIFF Pillow turns the pixels itself, and then drops the tag.
    orientation = _orientation(image)
    rgb = _rgb(image)
    return rgb.transpose(TRANSPOSITIONS[orientation]) if orientation in TRANSPOSITIONS else rgb


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged EXIF does not make the pixels unreadable
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode -> RGB: transparency over white, 16 bits and floats scaled to 8."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(to_8_bits(np.asarray(image)))
    if image.mode in ("LA", "PA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image)
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def to_8_bits(grey: NDArray[Any]) -> NDArray[np.uint8]:
    """16-bit samples keep their scale. What else there is does not tell its own: the narrowest
    usual range that holds the samples is taken for it, or else they are stretched."""
    if grey.dtype.kind == "u":
        return (grey >> 8).astype(np.uint8)
    values = grey.astype(np.float32)
    np.nan_to_num(values, copy=False, posinf=0, neginf=0)
    np.clip(values, -1e30, 1e30, out=values)
    low, high = float(values.min()), float(values.max())
    usual = (1, 255, 65535) if grey.dtype.kind == "f" else (255, 65535)
    low, high = next(((0, top) for top in usual if low >= 0 and high <= top), (low, high))
    values -= low
    values *= 255 / max(high - low, 1e-30)
    return values.round(out=values).astype(np.uint8)


def _resize_sizes(size: tuple[int, int], how: Transform) -> tuple[int, int]:
    """Width and height before the crop."""
    (width, height), (most_width, most_height) = size, how.target
    if how.fit == "squash":
        return most_width, most_height
    if how.fit == "letterbox":
        scale = min(most_width / width, most_height / height)
        return max(1, round(width * scale)), max(1, round(height * scale))
    if most_width * height >= most_height * width:
        return most_width, most_width * height // width
    return most_height * width // height, most_height


def _resize_pixels(picture: Image.Image, how: Transform) -> NDArray[Any]:
    if how.program:
        return own_steps.prepare(how.program, how.packages, picture, how.sides)
    if how.antialias:
        return np.asarray(resize_and_crop(picture, how))
    return _sample(picture, *how.target)


def resize_and_crop(picture: Image.Image, how: Transform) -> Image.Image:
    (width, height), (crop_height, crop_width) = picture.size, how.sides
    new_width, new_height = _resize_sizes(picture.size, how)
    filter_ = Image.Resampling[how.interpolation.upper()]
    if how.fit == "letterbox":
        framed = Image.new("RGB", (crop_width, crop_height), (how.pad,) * 3)
        place = (crop_width - new_width) // 2, (crop_height - new_height) // 2
        framed.paste(picture.resize((new_width, new_height), filter_), place)
        return framed
    if how.fit == "whole":
        if how.longest and max(new_width, new_height) > how.longest:
            raise PictureError(
                f"the picture has {width}x{height} pixels, and its long side may have at most "
                f"{how.longest / how.resize:g} times as many as its short one; send a part of it"
            )
        return picture.resize((new_width, new_height), filter_)
    left, top = how.offset(new_width - crop_width), how.offset(new_height - crop_height)
    right, bottom = left + crop_width, top + crop_height
    if how.decode == "full" and max(new_width, new_height) <= MAX_ASPECT_RATIO * how.resize:
        whole = picture.resize((new_width, new_height), filter_)
        return whole.crop((left, top, right, bottom))
    # Half the work: only the part of the source that the crop comes from. It differs by a level
    # where Pillow rounds otherwise, because it holds the box in single precision and may take
    # rows before columns.
    x, y = width / new_width, height / new_height
    box = (left * x, top * y, min(right * x, width), min(bottom * y, height))
    return picture.resize((crop_width, crop_height), filter_, box)


def _sample(picture: Image.Image, width: int, height: int) -> NDArray[np.float32]:
    """Bilinear between the four pixels around each point, as torch.nn.functional.interpolate."""
    source = np.asarray(picture)
    top, bottom, down = _neighbours(picture.height, height)
    left, right, across = _neighbours(picture.width, width)
    down, across = down[:, None, None], across[:, None]
    upper = source[np.ix_(top, left)] * (1 - across) + source[np.ix_(top, right)] * across
    lower = source[np.ix_(bottom, left)] * (1 - across) + source[np.ix_(bottom, right)] * across
    between: NDArray[np.float32] = np.add(upper * (1 - down), lower * down)
    return between


def _neighbours(
    has: int, wanted: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Of each point of a side: the pixels before and after it, and how near the latter is."""
    points = (np.arange(wanted, dtype=np.float32) + 0.5) * np.float32(has / wanted) - 0.5
    points = points.clip(0, has - 1)
    before = points.astype(np.intp)
    return before, np.minimum(before + 1, has - 1), points - before.astype(np.float32)
