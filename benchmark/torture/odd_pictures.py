"""Broken, odd and hostile image files, made here byte by byte, and what each must come to.

for odd in CATALOGUE:
    odd.data()      the bytes of the file
    odd.refusal     a piece of the message that refuses it, or None: it is answered
    odd.shows       the picture that an answered one shows, where that is known
"""

import io
import itertools
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageChops, ImageCms, ImageDraw, ImageOps, features

Bytes = Callable[[], bytes]
Picture = Callable[[], Image.Image]


def show_types(
    files: Mapping[str, tuple[Bytes, Picture | None]],
) -> Iterable[tuple[str, tuple[Bytes, Picture | None]]]:
    """What each file shows: so that the types are known."""
    return files.items()


@dataclass(frozen=True)
class Odd:
    name: str
    data: Bytes
    refusal: str | None = None
    shows: Picture | None = None
    # Mean difference of the pixels, in levels of 255, that the file's own coding may cause.
    within: float = 1.0

    def __str__(self) -> str:
        return self.name


def compute_expected_pixels(
    picture: Image.Image, resize: int = 256, crop: int = 224
) -> NDArray[np.uint8]:
    """The recipe written down a second time: over white, short side, centre crop.

    It works on no more of a strip's length than can be seen, so that strips cost nothing.
    """
    paper = Image.new("RGBA", picture.size, "white")
    picture = Image.alpha_composite(paper, picture.convert("RGBA")).convert("RGB")
    width, height = picture.size
    if width < height:
        lying = picture.transpose(Image.Transpose.TRANSPOSE)
        return compute_expected_pixels(lying, resize, crop).transpose(0, 2, 1)
    seen = min(width, 4 * height)
    picture = picture.crop(((width - seen) // 2, 0, (width - seen) // 2 + seen, height))
    resized = picture.resize((resize * seen // height, resize), Image.Resampling.BILINEAR)
    left, top = (round((side - crop) / 2) for side in resized.size)
    return np.asarray(resized.crop((left, top, left + crop, top + crop))).transpose(2, 0, 1)


# The pictures that the files show.


@cache
def scene() -> Image.Image:
    """Smooth, so that JPEG keeps it; different at every side and corner."""
    y, x = np.mgrid[0:300, 0:400].astype(np.float32)
    bands = 128 + 100 * np.sin(x / 23) * np.cos(y / 31)
    picture = Image.fromarray(np.dstack([x * 0.6, y * 0.8, bands]).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((80, 40, 160, 90), "white")
    draw.ellipse((250, 170, 310, 260), "navy")
    return picture


def plain(size: tuple[int, int] = (1, 1), colour: str = "teal") -> Image.Image:
    return Image.new("RGB", size, colour)


def grey_scene() -> Image.Image:
    return scene().convert("L")


def two_colours() -> Image.Image:
    return scene().convert("1", dither=Image.Dither.NONE)


@cache
def palette_scene() -> Image.Image:
    return scene().quantize(64)


def see_through() -> Image.Image:
    """The scene, fading out downwards."""
    return Image.merge("RGBA", (*scene().split(), Image.linear_gradient("L").resize(scene().size)))


def see_through_grey() -> Image.Image:
    return see_through().convert("LA")


def grey_ramp(size: tuple[int, int]) -> Image.Image:
    levels = np.linspace(0, 255, size[0] * size[1]).astype(np.uint8)
    return Image.fromarray(levels.reshape(size[::-1]))


def noise(size: tuple[int, int]) -> Image.Image:
    return Image.frombytes("RGB", size, random.Random(0).randbytes(3 * size[0] * size[1]))


# Files, written by Pillow.


def save(picture: Image.Image, format_: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, format_, **options)
    return file.getvalue()


def jpeg(**options: Any) -> bytes:
    return save(scene(), "JPEG", **{"quality": 90} | options)


def frames(format_: str, **options: Any) -> bytes:
    other = ImageOps.invert(scene())
    options = {"save_all": True, "append_images": [other, other], "duration": 100} | options
    return save(scene(), format_, **options)


TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def turn_scene(orientation: int, format_: str = "JPEG", **options: Any) -> bytes:
    """The scene as a camera held that way stores it: upright once the tag is honoured."""
    turn = TURNS[orientation]
    stored = scene() if turn is None else scene().transpose(turn)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    if format_ == "TIFF":
        return save(stored, format_, tiffinfo={ExifTags.Base.Orientation: orientation}, **options)
    return save(stored, format_, exif=exif, **options)


def adobe_transform(file: bytes, transform: int | None) -> bytes:
    """A JPEG with the transform of its Adobe marker set, or without the marker."""
    start = file.index(b"\xff\xee\x00\x0eAdobe")
    marker = b"" if transform is None else file[start : start + 15] + bytes([transform])
    return file[:start] + marker + file[start + 16 :]


def cmyk_jpeg() -> bytes:
    return save(scene().convert("CMYK"), "JPEG", quality=90)


def ycck_jpeg() -> bytes:
    """Adobe's YCCK: Y, Cb and Cr of the inverted colours, and an inverted black."""
    inks = (*ImageOps.invert(scene()).convert("YCbCr").split(), Image.new("L", scene().size, 255))
    as_cmyk = Image.merge("CMYK", [ImageChops.invert(ink) for ink in inks])
    return adobe_transform(save(as_cmyk, "JPEG", quality=90), 2)


def save_picture(make: Picture, format_: str, **options: Any) -> bytes:
    return save(make(), format_, **options)


def pad_file(make: Bytes, zeros: int) -> bytes:
    return make() + bytes(zeros)


def cut(make: Bytes, share: float) -> bytes:
    whole = make()
    return whole[: int(len(whole) * share)]


def cut_at(make: Bytes, mark: bytes, after: int) -> bytes:
    whole = make()
    return whole[: whole.index(mark) + after]


def zip_names(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), "<xml/>")
    return file.getvalue()


# Files, written by hand.

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
PNG_MODES = {"L": 0, "RGB": 2, "P": 3, "LA": 4, "RGBA": 6}


def png_chunk(kind: bytes, data: bytes = b"") -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(size: tuple[int, int], mode: str, bits: int, pixels: bytes, extra: bytes = b"") -> bytes:
    """pixels: rows, each behind its filter byte, deflated."""
    header = struct.pack(">IIBBBBB", *size, bits, PNG_MODES[mode], 0, 0, 0)
    return (
        PNG_MAGIC
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", pixels)
        + png_chunk(b"IEND")
    )


def png_16_bits(picture: Image.Image, extra: bytes = b"") -> bytes:
    samples = np.asarray(picture).astype(">u2") * 257
    rows = samples.reshape(picture.height, -1).astype(">u2").view(np.uint8)
    filtered = np.pad(rows, ((0, 0), (1, 0))).tobytes()
    return png(picture.size, picture.mode, 16, zlib.compress(filtered), extra)


def deflate_zeros(length: int) -> bytes:
    """What zlib.compress(bytes(length)) means, at once: one block of a megabyte again and again."""
    megabytes, rest = divmod(length, 1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    end = deflate.compress(bytes(rest)) + deflate.flush()
    adler32 = length % 65521 << 16 | 1
    return b"\x78\xda" + block * megabytes + end + adler32.to_bytes(4, "big")


def flat_png(size: tuple[int, int], bits: int = 1) -> bytes:
    row = 1 + (size[0] * bits + 7) // 8
    return png(size, "L", bits, deflate_zeros(row * size[1]))


def scene_png_with(extra: bytes) -> bytes:
    file = save(scene(), "PNG")
    return file[:33] + extra + file[33:]


def flip_bit(file: bytes, position: int) -> bytes:
    return file[:position] + bytes([file[position] ^ 1]) + file[position + 1 :]


def png_with_wrong_crc(chunk: bytes) -> bytes:
    file = save(scene(), "PNG")
    start = file.index(chunk) - 4
    length = int.from_bytes(file[start : start + 4], "big")
    return flip_bit(file, start + 8 + length)


def jpeg_claiming(width: int, height: int, precision: int = 8, kind: int = 0xC0) -> bytes:
    file = jpeg()
    frame = file.index(b"\xff\xc0")
    claim = struct.pack(">BBHBHH", 0xFF, kind, 17, precision, height, width)
    return file[:frame] + claim + file[frame + len(claim) :]


def jpeg_with(segments: bytes) -> bytes:
    file = jpeg()
    return file[:2] + segments + file[2:]


def progressive_jpeg_of_scans(side: int, scans: int) -> bytes:
    """Each scan of a few bytes says "nothing new in any block", and costs a pass over them all."""
    blocks = (side // 8) ** 2
    frame = struct.pack(">HBHHB", 11, 8, side, side, 1) + bytes([1, 0x11, 0])
    one_code = bytes([1, *[0] * 15])
    nothing_in_32767_blocks = "0" + "1" * 14
    runs = nothing_in_32767_blocks * -(-blocks // 32767)
    runs += "1" * (-len(runs) % 8)
    coded = int(runs, 2).to_bytes(len(runs) // 8, "big").replace(b"\xff", b"\xff\0")
    return b"".join(
        [
            b"\xff\xd8\xff\xdb\x00\x43\x00" + bytes([1] * 64),
            b"\xff\xc2" + frame,
            b"\xff\xc4\x00\x14\x00" + one_code + b"\x00",
            b"\xff\xc4\x00\x14\x10" + one_code + b"\xe0",
            b"\xff\xda\x00\x08\x01\x01\x00\x00\x00\x00" + bytes(-(-blocks // 8)),
            *(
                b"\xff\xda\x00\x08\x01\x01\x00" + bytes([band, band, 0]) + coded
                for band in itertools.islice(itertools.cycle(range(1, 64)), scans)
            ),
            b"\xff\xd9",
        ]
    )


def gif_claiming(screen: tuple[int, int], frame: tuple[int, int], extensions: bytes = b"") -> bytes:
    file = save(palette_scene(), "GIF")
    start = file.index(b"\x2c" + struct.pack("<HHHH", 0, 0, *scene().size))
    descriptor = b"\x2c" + struct.pack("<HHHH", 0, 0, *frame)
    colours = file[10:start]
    return (
        file[:6]
        + struct.pack("<HH", *screen)
        + colours
        + extensions
        + descriptor
        + file[start + 9 :]
    )


def bmp(width: int, height: int, bits: int, pixels: bytes, compression: int = 0) -> bytes:
    colours = b"".join(bytes([i, i, i, 0]) for i in range(1 << bits)) if bits <= 8 else b""
    start = 14 + 40 + len(colours)
    info = (40, width, height, 1, bits, compression, len(pixels), 0, 0, 0, 0)
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", start + len(pixels), 0, start, *info)
    return header + colours + pixels


BYTE, SHORT, LONG, FRACTION = 1, 3, 4, 5
# In place of a tag's value: where the data behind the directory begins.
DATA = -1


def tiff(tags: dict[int, tuple[int, int, int]], data: bytes = b"", order: str = "<") -> bytes:
    """tags: number -> (type, count, value or offset)."""
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b""
    for tag, (kind, count, value) in sorted(tags.items()):
        inline = "HHIHxx" if (kind, count) == (SHORT, 1) else "HHII"
        entries += struct.pack(order + inline, tag, kind, count, start if value == DATA else value)
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(tags))
    return head + entries + bytes(4) + data


def grey_tags(
    width: int, height: int, length: int, bits: int = 8, rows: int | None = None
) -> dict[int, tuple[int, int, int]]:
    """Of a grey TIFF in one strip, not compressed."""
    return {
        256: (LONG, 1, width),
        257: (LONG, 1, height),
        258: (SHORT, 1, bits),
        259: (SHORT, 1, 1),
        262: (SHORT, 1, 1),
        273: (LONG, 1, DATA),
        277: (SHORT, 1, 1),
        278: (LONG, 1, rows or height),
        279: (LONG, 1, length),
    }


def tiff_16_bits(order: str) -> bytes:
    samples = (np.asarray(grey_scene()).astype(order + "u2") * 257).astype(order + "u2").tobytes()
    return tiff(grey_tags(*scene().size, len(samples), bits=16), samples, order)


def tiff_of_million_strips() -> bytes:
    offsets = struct.pack("<I", 8) * 1_000_000
    tags = grey_tags(100, 100, 0, rows=1)
    return tiff(tags | {273: (LONG, 1_000_000, DATA), 279: (LONG, 1_000_000, DATA)}, offsets)


def tiff_of_one_huge_tile(side: int = 20_000) -> bytes:
    """A small picture, cut out of a tile that unpacks to 400 MB."""
    tile = deflate_zeros(side * side)
    tags = grey_tags(300, 300, 0) | {
        259: (SHORT, 1, 8),
        322: (LONG, 1, side),
        323: (LONG, 1, side),
        324: (LONG, 1, DATA),
        325: (LONG, 1, len(tile)),
    }
    for strips in (273, 278, 279):
        del tags[strips]
    return tiff(tags, tile)


def float_tiff(values: NDArray[np.float32]) -> bytes:
    return save(Image.fromarray(values.astype(np.float32)), "TIFF")


def grey_values() -> NDArray[np.float32]:
    return np.asarray(grey_scene(), np.float32)


def make_values_with_holes() -> NDArray[np.float32]:
    values = grey_values() / np.float32(255)
    values[0, :3] = np.nan, np.inf, -np.inf
    return values


def webp_claiming(side: int) -> bytes:
    file = save(plain((16, 16)), "WEBP", lossless=True)
    signature = file.index(b"VP8L") + 8
    claim = struct.pack("<I", (side - 1) | (side - 1) << 14)
    return file[: signature + 1] + claim + file[signature + 5 :]


def avif_claiming(side: int) -> bytes:
    file = save(plain((16, 16)), "AVIF")
    size = file.index(b"ispe") + 8
    return file[:size] + struct.pack(">II", side, side) + file[size + 8 :]


def int_tiff(scale: int, shift: int = 0) -> bytes:
    values = np.asarray(grey_scene(), np.int32) * scale + shift
    return save(Image.fromarray(values), "TIFF")


def stretch_grey_scene() -> Image.Image:
    return ImageOps.autocontrast(grey_scene())


def lab_scene() -> Image.Image:
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    in_lab = ImageCms.profileToProfile(scene(), srgb, lab, outputMode="LAB")
    assert in_lab is not None
    return in_lab


def scene_without_navy() -> Image.Image:
    colours = np.array(scene())
    colours[(colours == (0, 0, 128)).all(axis=2)] = 255
    return Image.fromarray(colours)


def palette_scene_without_colour_5() -> Image.Image:
    indices = np.asarray(palette_scene())
    colours = np.array(palette_scene().convert("RGB"))
    colours[indices == 5] = 255
    return Image.fromarray(colours)


def make_looped_tiff() -> bytes:
    file = tiff(grey_tags(9, 9, 81), bytes(81))
    following = 8 + 2 + 12 * 9
    return file[:following] + struct.pack("<I", 8) + file[following + 4 :]


def make_crowded_tiff() -> bytes:
    """Tags that libtiff does not know, each worth a line of complaint to it."""
    odd = {tag: (7, 9, DATA) for tag in range(51_200, 55_200)}
    return tiff(odd | grey_tags(9, 9, 81), bytes(81))


def make_crowded_big_tiff() -> bytes:
    tag = struct.pack("<HHQQ", 305, 1, 1, 1)
    return b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 200_000) + tag * 200_000 + bytes(8)


def run_length_bmp() -> bytes:
    return bmp(9, 9, 8, b"\x09\x07\0\0" * 9 + b"\0\1", 1)


def make_interlaced_png() -> bytes:
    """Adam7, written pass by pass; Pillow reads it but does not write it."""
    pixels = np.asarray(scene())
    steps = (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    )
    rows = b""
    for x, y, across, down in steps:
        part = pixels[y::down, x::across]
        rows += np.pad(part.reshape(len(part), -1), ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", *scene().size, 8, PNG_MODES["RGB"], 0, 0, 1)
    return b"".join(
        [
            PNG_MAGIC,
            png_chunk(b"IHDR", header),
            png_chunk(b"IDAT", zlib.compress(rows)),
            png_chunk(b"IEND"),
        ]
    )


def make_crowded_exif() -> bytes:
    """65,000 tags, each pointing at the same 60 kB."""
    entries = b"".join(struct.pack("<HHII", tag, 7, 60_000, 8) for tag in range(65_000))
    return b"II*\0" + struct.pack("<IH", 8, 65_000) + entries + bytes(4)


def fractions() -> bytes:
    return struct.pack("<II", 1_000_003, 7) * 500_000


def turned_avif_of_fractions() -> bytes:
    """Of a turned one Pillow reads all tags, also before it writes them: so it writes bytes."""
    exif = tiff({274: (SHORT, 1, 6), 51_200: (BYTE, 4_000_000, DATA)}, fractions())
    as_bytes, as_fractions = (
        struct.pack("<HHI", 51_200, kind, count)
        for kind, count in ((BYTE, 4_000_000), (FRACTION, 500_000))
    )
    return save(scene(), "AVIF", exif=exif).replace(as_bytes, as_fractions)


# The catalogue.


NO_PICTURE = "not a readable picture"
DAMAGED = "damaged or truncated"
SEND_WHOLE = "send the whole"
TOO_MANY_PIXELS = "more than the limit of 50 megapixels"
TOO_LONG = "a side may have 65535"
TOO_MANY_PIECES = "too many tiny pieces"
TOO_MANY_NUMBERS = "more than 10000 numbers as tags"


def constant(data: bytes) -> Bytes:
    return lambda: data


FILES: dict[str, Bytes] = {
    "JPEG": jpeg,
    "progressive JPEG": partial(jpeg, progressive=True),
    "PNG": lambda: save(scene(), "PNG"),
    "GIF": lambda: save(palette_scene(), "GIF"),
    "WEBP": lambda: save(scene(), "WEBP", lossless=True),
    "TIFF": lambda: save(scene(), "TIFF"),
    "TIFF with LZW": lambda: save(scene(), "TIFF", compression="tiff_lzw"),
    "BMP": lambda: save(scene(), "BMP"),
}
if features.check("avif"):
    FILES["AVIF"] = lambda: save(scene(), "AVIF", quality=90)
MAGIC = {
    "JPEG": b"\xff\xd8\xff",
    "PNG": PNG_MAGIC,
    "GIF": b"GIF89a",
    "WEBP": b"RIFF\x24\0\0\0WEBPVP8 ",
    "TIFF": b"II*\0",
    "BMP": b"BM",
    "AVIF": b"\0\0\0\x20ftypavif",
}


def not_pictures() -> Iterator[Odd]:
    yield Odd("empty", bytes, "the picture is empty (0 bytes)")
    for name, data in {
        "one byte": b"\xff",
        "text": b"Dear Sir or Madam,\nplease find the photo attached.\n",
        "text in UTF-16": "Sehr geehrte Damen und Herren".encode("utf-16"),
        "HTML": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "JSON": b'{"error": "not found"}',
        "base64 of a JPEG": b"/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJ",
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><rect width="9" height="9"/></svg>',
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) show\n",
        "PDF": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
        "MP4": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom\0\0\0\x08mdat",
        "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0heicmif1\0\0\0\x08mdat",
        "zeros": bytes(1000),
        "noise": random.Random(1).randbytes(4096),
        "zip": zip_names("photo.txt"),
        "docx": zip_names("[Content_Types].xml", "word/document.xml"),
        "gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + zlib.compress(b"picture"),
    }.items():
        yield Odd(name, constant(data), NO_PICTURE)
    for format_, data in MAGIC.items():
        yield Odd(f"only the first bytes of a {format_}", constant(data), SEND_WHOLE)
    # Pictures, but in formats that are left out on purpose.
    yield Odd("PPM", lambda: save(scene(), "PPM"), NO_PICTURE)
    yield Odd("ICO", lambda: save(plain((32, 32)), "ICO"), NO_PICTURE)
    yield Odd("TGA", lambda: save(scene(), "TGA"), NO_PICTURE)
    if features.check("jpg_2000"):
        yield Odd("JPEG 2000", lambda: save(scene(), "JPEG2000"), NO_PICTURE)


def cut_off() -> Iterator[Odd]:
    for place, (mark, length) in {
        "the start of image": (b"\xff\xd8", 2),
        "half of the JFIF header": (b"JFIF", 5),
        "half of the quantisation": (b"\xff\xdb", 30),
        "half of the frame header": (b"\xff\xc0", 6),
        "half of the Huffman codes": (b"\xff\xc4", 12),
        "half of the scan header": (b"\xff\xda", 5),
        "the scan header": (b"\xff\xda", 14),
    }.items():
        yield Odd(f"JPEG cut after {place}", partial(cut_at, jpeg, mark, length), SEND_WHOLE)
    for share in (0.25, 0.5, 0.75, 0.95, 0.999):
        yield Odd(f"JPEG cut at {share:.1%}", partial(cut, jpeg, share), DAMAGED)
    yield Odd("JPEG without its end", lambda: jpeg()[:-2], DAMAGED)
    for name, file in FILES.items():
        if name != "JPEG":
            yield Odd(f"{name} cut at 50%", partial(cut, file, 0.5), SEND_WHOLE)
            yield Odd(f"{name} cut at 90%", partial(cut, file, 0.9), SEND_WHOLE)
    # Nothing that shows is missing.
    yield Odd("PNG without its end", lambda: FILES["PNG"]()[:-12], shows=scene)
    yield Odd("GIF without its end", lambda: FILES["GIF"]()[:-1], shows=palette_scene)


def mix_up() -> Iterator[Odd]:
    tags = grey_tags(9, 9, 81)
    for name, (data, refusal) in {
        "PNG's first bytes before a JPEG": (lambda: PNG_MAGIC + jpeg(), SEND_WHOLE),
        "JPEG's first bytes before a PNG": (lambda: b"\xff\xd8\xff" + FILES["PNG"](), NO_PICTURE),
        "a byte before a JPEG": (lambda: b"\n" + jpeg(), NO_PICTURE),
        "PNG sent as text": (lambda: FILES["PNG"]().replace(b"\r\n", b"\n"), NO_PICTURE),
        "JPEG sent as text": (lambda: jpeg().decode("latin-1").encode(), NO_PICTURE),
        "PNG with a wrong checksum of its header": (
            lambda: png_with_wrong_crc(b"IHDR"),
            NO_PICTURE,
        ),
        "PNG with damaged pixels": (lambda: flip_bit(FILES["PNG"](), 5000), DAMAGED),
        "PNG of 0x0": (lambda: png((0, 0), "RGB", 8, zlib.compress(b"")), SEND_WHOLE),
        "JPEG of no height": (lambda: jpeg_claiming(400, 0), SEND_WHOLE),
        "JPEG of 12 bits": (lambda: jpeg_claiming(400, 300, precision=12), NO_PICTURE),
        "JPEG that claims to be lossless": (lambda: jpeg_claiming(400, 300, kind=0xC3), DAMAGED),
        "BMP of negative width": (lambda: bmp(-4, 4, 8, bytes(16)), TOO_MANY_PIXELS),
        "TIFF without a tag": (lambda: tiff({}), SEND_WHOLE),
        "TIFF of unknown compression": (
            lambda: tiff(tags | {259: (SHORT, 1, 999)}, bytes(81)),
            SEND_WHOLE,
        ),
        "TIFF whose strip is elsewhere": (
            lambda: tiff(tags | {273: (LONG, 1, 9999)}, bytes(81)),
            DAMAGED,
        ),
    }.items():
        yield Odd(name, data, refusal)


def sizes() -> Iterator[Odd]:
    for name in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"):
        if name in FILES:
            yield Odd(f"{name} of 1x1", partial(save, plain(), name), shows=plain, within=4)
    for size in ((1, 20_000), (20_000, 1), (3, 9_000), (65_500, 2)):
        ramp = partial(grey_ramp, size)
        yield Odd(f"strip of {size[0]}x{size[1]}", partial(save_picture, ramp, "PNG"), shows=ramp)
    black = partial(plain, (9, 9), "black")
    for size in ((40_000_000, 1), (1, 49_000_000)):
        yield Odd(f"strip of {size[0]}x{size[1]}", partial(flat_png, size), TOO_LONG)
        strip = partial(tiff, grey_tags(*size, 9), bytes(9))
        yield Odd(f"TIFF strip of {size[0]}x{size[1]}", strip, TOO_LONG)
    yield Odd("flat PNG of 49 megapixels", lambda: flat_png((7000, 7000)), shows=black)
    noisy = partial(noise, (3400, 3000))
    yield Odd("BMP of 30 MB", partial(save_picture, noisy, "BMP"), shows=noisy)
    yield Odd("PNG of 30 MB", partial(save_picture, noisy, "PNG", compress_level=0), shows=noisy)


def bombs() -> Iterator[Odd]:
    side = 20_000
    for name, data in {
        "PNG, header only": lambda: png((side, side), "RGB", 8, zlib.compress(bytes(9))),
        "PNG, all there": lambda: flat_png((side, side)),
        "JPEG": lambda: jpeg_claiming(side, side),
        "GIF": lambda: gif_claiming((side, side), (9, 9)),
        "GIF frame": lambda: gif_claiming((9, 9), (side, side)),
        "WEBP": lambda: webp_claiming(16_384),
        "TIFF": lambda: tiff(grey_tags(side, side, 9), bytes(9)),
        "TIFF of 4 billion squared": lambda: tiff(grey_tags(2**32 - 1, 2**32 - 1, 9), bytes(9)),
        "BMP": lambda: bmp(side, side, 8, bytes(9)),
    }.items():
        yield Odd(f"bomb: {name}", data, TOO_MANY_PIXELS)
    if "AVIF" in FILES:
        yield Odd("bomb: AVIF", lambda: avif_claiming(side), NO_PICTURE)


def modes() -> Iterator[Odd]:
    for name, (data, shows) in show_types(
        {
            "CMYK JPEG": (cmyk_jpeg, scene),
            "CMYK JPEG without Adobe's marker": (lambda: adobe_transform(cmyk_jpeg(), None), scene),
            "YCCK JPEG": (ycck_jpeg, scene),
            "grey JPEG": (partial(save_picture, grey_scene, "JPEG", quality=90), grey_scene),
            "YCbCr TIFF of JPEG strips": (
                partial(save_picture, scene, "TIFF", compression="jpeg"),
                scene,
            ),
            "LAB TIFF": (partial(save_picture, lab_scene, "TIFF"), scene),
        }
    ):
        yield Odd(name, data, shows=shows, within=3)
    clear = partial(Image.new, "RGBA", (9, 9))
    palette_without_5 = palette_scene_without_colour_5
    for name, (data, shows) in show_types(
        {
            "CMYK TIFF": (lambda: save(scene().convert("CMYK"), "TIFF"), scene),
            "grey PNG": (partial(save_picture, grey_scene, "PNG"), grey_scene),
            "interlaced PNG": (make_interlaced_png, scene),
            "1-bit PNG": (partial(save_picture, two_colours, "PNG"), two_colours),
            "1-bit fax TIFF": (
                partial(save_picture, two_colours, "TIFF", compression="group4"),
                two_colours,
            ),
            "palette PNG": (partial(save_picture, palette_scene, "PNG"), palette_scene),
            "palette PNG with a transparent colour": (
                partial(save_picture, palette_scene, "PNG", transparency=5),
                palette_without_5,
            ),
            "palette PNG with an alpha for each colour": (
                partial(save_picture, palette_scene, "PNG", transparency=bytes([255] * 5 + [0])),
                palette_without_5,
            ),
            "palette PNG without a palette": (
                lambda: png((9, 9), "P", 8, zlib.compress(bytes(90))),
                partial(plain, (9, 9), "black"),
            ),
            "RGB PNG with a transparent colour": (
                partial(save_picture, scene, "PNG", transparency=scene().getpixel((280, 200))),
                scene_without_navy,
            ),
            "grey PNG with alpha": (
                partial(save_picture, see_through_grey, "PNG"),
                see_through_grey,
            ),
            "RGBA PNG": (partial(save_picture, see_through, "PNG"), see_through),
            "RGBA PNG, wholly transparent": (partial(save_picture, clear, "PNG"), clear),
            "RGBA WEBP": (
                partial(save_picture, see_through, "WEBP", lossless=True, exact=True),
                see_through,
            ),
            "RGBA TIFF": (partial(save_picture, see_through, "TIFF"), see_through),
            "16-bit grey PNG": (lambda: png_16_bits(grey_scene()), grey_scene),
            "16-bit RGB PNG": (lambda: png_16_bits(scene()), scene),
            "16-bit RGBA PNG": (lambda: png_16_bits(see_through()), see_through),
            "16-bit grey TIFF, little-endian": (lambda: tiff_16_bits("<"), grey_scene),
            "16-bit grey TIFF, big-endian": (lambda: tiff_16_bits(">"), grey_scene),
            "32-bit TIFF of 8-bit values": (lambda: int_tiff(1), grey_scene),
            "32-bit TIFF of 16-bit values": (lambda: int_tiff(257), grey_scene),
            "32-bit TIFF of any values": (
                lambda: int_tiff(8_000_000, -(10**9)),
                stretch_grey_scene,
            ),
            "float TIFF from 0 to 1": (
                lambda: float_tiff(grey_values() / np.float32(255)),
                grey_scene,
            ),
            "float TIFF from 0 to 255": (lambda: float_tiff(grey_values()), grey_scene),
            "float TIFF with NaN and infinity": (
                lambda: float_tiff(make_values_with_holes()),
                grey_scene,
            ),
            "float TIFF of one huge value": (lambda: float_tiff(np.full((9, 9), 3e38)), None),
            "float TIFF of NaN": (lambda: float_tiff(np.full((9, 9), np.nan)), None),
        }
    ):
        yield Odd(name, data, shows=shows)


def orientations() -> Iterator[Odd]:
    for orientation in TURNS:
        data = partial(turn_scene, orientation)
        yield Odd(f"JPEG of orientation {orientation}", data, shows=scene, within=2)
    for name, orientation, options in (
        ("PNG", 6, {}),
        ("WEBP", 8, {"lossless": True}),
        ("TIFF", 6, {}),
        ("TIFF", 5, {"compression": "tiff_lzw"}),
        ("AVIF", 6, {"quality": 90}),
    ):
        if name in FILES:
            data = partial(turn_scene, orientation, name, **options)
            yield Odd(f"{name} of orientation {orientation}", data, shows=scene, within=2)
    for name, exif in {
        "orientation 0": tiff({274: (SHORT, 1, 0)}),
        "orientation 99": tiff({274: (SHORT, 1, 99)}),
        "three orientations": tiff({274: (LONG, 3, DATA)}, struct.pack("<III", 1, 6, 6)),
        "an orientation in words": tiff({274: (2, 9, DATA)}, b"portrait\0"),
        "an orientation outside the file": tiff({274: (SHORT, 99, 2**31)}),
        "EXIF cut off": tiff({274: (SHORT, 1, 6)})[:15],
        "noise for EXIF": random.Random(2).randbytes(500),
        "no EXIF behind its name": b"",
    }.items():
        data = partial(jpeg, exif=b"Exif\0\0" + exif)
        yield Odd(f"JPEG with {name}", data, shows=scene, within=2)


def animations() -> Iterator[Odd]:
    """The first frame is meant."""
    coded: dict[str, dict[str, Any]] = {
        "GIF": {},
        "WEBP": {"lossless": True},
        "PNG": {},
        "TIFF": {},
        "MPO": {"quality": 90},
        "AVIF": {"quality": 90},
    }
    for name, options in coded.items():
        if name in FILES or name == "MPO":
            within = 6 if name == "GIF" else 2
            data = partial(frames, name, **options)
            yield Odd(f"{name} of three frames", data, shows=scene, within=within)
    yield Odd(
        "PNG of a still picture and two frames",
        partial(frames, "PNG", default_image=True),
        shows=scene,
    )


def odd_but_right() -> Iterator[Odd]:
    for name, file in FILES.items():
        shows_it = palette_scene if name == "GIF" else scene
        zeros = partial(pad_file, file, 100_000)
        yield Odd(f"{name} padded with zeros", zeros, shows=shows_it, within=2)
    film = b"\0\0\0\x18ftypmp42" + random.Random(3).randbytes(3_000_000)
    text = png_chunk(b"tEXt", b"Comment\0" + b"x" * 8_000_000)
    small_screen = partial(gif_claiming, (9, 9), scene().size)
    upside_down = partial(bmp, 400, -300, 8, grey_scene().tobytes())
    for name, (data, shows) in show_types(
        {
            "JPEG before a film": (lambda: jpeg() + film, scene),
            "progressive JPEG before a film": (lambda: jpeg(progressive=True) + film, scene),
            "JPEG with restart markers": (partial(jpeg, restart_marker_blocks=1), scene),
            "JPEG with a colour profile of 1 MB": (partial(jpeg, icc_profile=bytes(10**6)), scene),
            "JPEG with a flipped bit": (lambda: flip_bit(jpeg(), 5000), None),
            "JPEG that claims more rows than it has": (lambda: jpeg_claiming(400, 900), None),
            "PNG with a wrong checksum of its pixels": (lambda: png_with_wrong_crc(b"IDAT"), scene),
            "PNG with 8 MB of text": (lambda: scene_png_with(text), scene),
            "GIF frame larger than its screen": (small_screen, palette_scene),
            "run-length coded BMP": (run_length_bmp, partial(plain, (9, 9), "#070707")),
            "BMP from the top down": (upside_down, grey_scene),
            "TIFF whose directory is its own next": (
                make_looped_tiff,
                partial(plain, (9, 9), "black"),
            ),
        }
    ):
        yield Odd(name, data, shows=shows, within=2)


def attacks() -> Iterator[Odd]:
    """Small files that cost seconds to minutes, or gigabytes, where nothing limits them."""
    zeros = deflate_zeros(100_000_000)
    bomb_of_text = png_chunk(b"zTXt", b"Comment\0\0" + zeros)
    bomb_of_profile = png_chunk(b"iCCP", b"sRGB\0\0" + zeros)
    for name, (data, refusal) in {
        "JPEG of 100,000 segments": (lambda: jpeg_with(b"\xff\xe5\0\2" * 100_000), TOO_MANY_PIECES),
        "JPEG of 24,000 pieces of EXIF": (
            lambda: jpeg_with((b"\xff\xe1\1\x90Exif\0\0" + bytes(392)) * 24_000),
            TOO_MANY_PIECES,
        ),
        "JPEG of a million fill bytes": (lambda: jpeg_with(b"\xff" * 10**6), TOO_MANY_PIECES),
        "JPEG of 1000 scans": (
            lambda: progressive_jpeg_of_scans(7040, 1000),
            "has 1001 scans, more than the limit",
        ),
        "PNG of 100,000 empty chunks": (
            lambda: scene_png_with(png_chunk(b"quRk") * 100_000),
            TOO_MANY_PIECES,
        ),
        "PNG of 100,000 texts": (
            lambda: scene_png_with(png_chunk(b"tEXt", b"a\0b") * 100_000),
            TOO_MANY_PIECES,
        ),
        "PNG with a text of 100 MB, deflated": (lambda: scene_png_with(bomb_of_text), DAMAGED),
        "PNG with a profile of 100 MB, deflated": (
            lambda: scene_png_with(bomb_of_profile),
            DAMAGED,
        ),
        "GIF of 100,000 empty extensions": (
            lambda: gif_claiming((9, 9), (9, 9), b"!\xfe\0" * 100_000),
            TOO_MANY_PIECES,
        ),
        "BMP of runs of one pixel": (
            lambda: bmp(1000, 1000, 8, b"\1\7" * 10**6, compression=1),
            TOO_MANY_PIECES,
        ),
        "BigTIFF of 200,000 tags": (make_crowded_big_tiff, TOO_MANY_PIECES),
        "TIFF of a million strips": (tiff_of_million_strips, DAMAGED),
        "TIFF of 4 billion strips": (
            lambda: tiff(grey_tags(9, 9, 81) | {273: (LONG, 2**32 - 1, 8)}, bytes(81)),
            SEND_WHOLE,
        ),
        "TIFF with a resolution of 500,000 fractions": (
            lambda: tiff(grey_tags(9, 9, 81) | {282: (FRACTION, 500_000, DATA)}, fractions()),
            TOO_MANY_NUMBERS,
        ),
        "TIFF of one huge tile": (tiff_of_one_huge_tile, "stored in tiles of 20000x20000 pixels"),
    }.items():
        yield Odd(name, data, refusal)
    black = partial(plain, (9, 9), "black")
    yield Odd("TIFF of 4,000 odd tags", make_crowded_tiff, shows=black)
    if "AVIF" in FILES:
        data = turned_avif_of_fractions
        yield Odd("turned AVIF with EXIF of 500,000 fractions", data, TOO_MANY_NUMBERS)
    exif = b"Exif\0\0" + make_crowded_exif()
    yield Odd(
        "WEBP with EXIF of 65,000 tags",
        partial(save_picture, scene, "WEBP", lossless=True, exif=exif),
        shows=scene,
    )


CATALOGUE = (
    *not_pictures(),
    *cut_off(),
    *mix_up(),
    *sizes(),
    *bombs(),
    *modes(),
    *orientations(),
    *animations(),
    *odd_but_right(),
    *attacks(),
)


def difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.int16]:
    assert one.shape == other.shape
    distance: NDArray[np.int16] = np.abs(one.astype(np.int16) - other)
    return distance


@cache
def landscape() -> Image.Image:
    """Noise with the spectrum of a photograph."""
    width, height = 2100, 1300
    random_ = np.random.default_rng(0).standard_normal((3, height, width)).astype(np.float32)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    spectrum = np.fft.rfft2(random_) / np.maximum(frequency, 1 / width)
    waves = np.fft.irfft2(spectrum, s=(height, width))
    pixels = np.clip(128 + 55 * waves / waves.std(), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels.transpose(1, 2, 0))
