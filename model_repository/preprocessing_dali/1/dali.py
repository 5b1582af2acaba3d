"""Image files in, pixels out, on the GPU: what bundle_serving.pictures does with DECODE=full.

Triton's dali backend runs this file when it loads the model, and keeps the pipeline it describes.
"""

import json
from pathlib import Path

import nvidia.dali as dali
from nvidia.dali import fn, types
from nvidia.dali.plugin.triton import autoserialize

HOW = json.loads(Path(__file__).with_name("transform.json").read_text())
RESIZE, CROP = HOW["resize"], HOW["crop"]
EVEN = int(HOW.get("middle") != "first")  # which earlier versions lack
FILTER = {"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}[HOW["interpolation"]]


@autoserialize
@dali.pipeline_def(
    batch_size=256, num_threads=4, device_id=0, output_dtype=[types.UINT8], output_ndim=[3]
)
def preprocessing():
    files = fn.external_source(device="cpu", name="INPUT_0", dtype=types.UINT8, ndim=1)
    # Both of "experimental": DALI 2.1's other decoder does not turn pictures as their EXIF says.
    shape = fn.experimental.peek_image_shape(files)[:2]
    pictures = fn.experimental.decoders.image(files, device="mixed", output_type=types.RGB)
    # As torchvision does: the short side resized, the long one rounded down, and the middle cut
    # out of that, by half of what is too much; of an odd number, by the half that is even, or the
    # smaller one. Only the part that stays is computed.
    size = shape * RESIZE // fn.reductions.min(shape)
    spare = size - CROP
    start = spare // 2 + (spare & (spare // 2) & EVEN)
    scale = shape / size
    cropped = fn.resize(
        pictures,
        size=(CROP, CROP),
        roi_start=start * scale,
        roi_end=(start + CROP) * scale,
        interp_type=FILTER,
        antialias=True,
    )
    return fn.transpose(cropped, perm=[2, 0, 1])
