"""Pictures in memory -> files as the server accepts them."""

import io
import struct
import sys
import zlib
from typing import TYPE_CHECKING, TypeGuard

from .errors import SourceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Array = NDArray[np.uint8]

# By number of channels: grey, grey with alpha, RGB, RGBA.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
SAVED_AS_PNG = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
# Wider than PNG can be; how it is to be seen, the server decides, as of a file.
SAVED_AS_TIFF = ("I", "F")


def is_image(source: object) -> "TypeGuard[Image]":
    """Whether it is a Pillow image, without importing Pillow, which is optional."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return image is not None and isinstance(source, image)


def is_array(source: object) -> "TypeGuard[Array]":
    # Another thread may be about to import it.
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and isinstance(source, array)


def image_file(image: "Image") -> bytes:
    """The image, upright, and uncompressed: compressing takes longer than sending."""
    from PIL import ImageOps

    file = io.BytesIO()
    try:
        upright = ImageOps.exif_transpose(image)
        if upright.mode in SAVED_AS_TIFF:
            upright.save(file, "TIFF")
        else:
            saved = upright if upright.mode in SAVED_AS_PNG else upright.convert("RGB")
            saved.save(file, "PNG", compress_level=0)
    except (OSError, ValueError) as exc:  # Pillow reads the file only now
        raise SourceError(f"the image cannot be read ({exc})", "check its file") from exc
    return file.getvalue()


def array_file(array: "Array") -> bytes:
    """The pixels as a PNG, without Pillow."""
    import numpy as np

    pixels = array[..., np.newaxis] if array.ndim == 2 else array
    whole = pixels.ndim == 3 and pixels.size and pixels.shape[2] in COLOUR_TYPES
    if not whole or pixels.dtype != np.uint8:
        raise SourceError(
            f"an array of {array.dtype} {list(array.shape)} is not a picture",
            "give uint8 [height, width, 3], as RGB from 0 to 255",
        )
    height, width, channels = pixels.shape
    header = struct.pack(">2I5B", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    # Each row begins with the number of its filter: none.
    rows = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
