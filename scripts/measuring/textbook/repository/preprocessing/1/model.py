"""The textbook's way with pictures: torchvision's transforms, made anew for every request."""

import io
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image
from vision import torchvision

transforms = torchvision.transforms


class TritonPythonModel:
    def initialize(self, args):
        folder = Path(args["model_repository"]) / args["model_version"]
        self.recipe = json.loads((folder / "recipe.json").read_text())

    def execute(self, requests):
        responses = []
        for request in requests:
            in_0 = pb_utils.get_input_tensor_by_name(request, "INPUT_0")

            normalize = transforms.Normalize(
                mean=[0.485, 0.456, 0.406],
                std=[0.229, 0.224, 0.225],
            )
            loader = transforms.Compose(
                [
                    transforms.Resize(self.recipe["resize"]),
                    transforms.CenterCrop(self.recipe["crop"]),
                    transforms.ToTensor(),
                    normalize,
                ]
            )

            image = Image.open(io.BytesIO(in_0.as_numpy().tobytes())).convert("RGB")
            img_out = np.array(loader(image).unsqueeze(0))

            out_tensor_0 = pb_utils.Tensor("OUTPUT_0", img_out.astype(np.float32))
            responses.append(pb_utils.InferenceResponse(output_tensors=[out_tensor_0]))
        return responses
