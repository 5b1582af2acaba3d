# Weights -> ONNX -> TensorRT plan: NVIDIA's pytorch image, and what it lacks for that.
ARG TRITON_TAG
FROM nvcr.io/nvidia/pytorch:${TRITON_TAG}-py3 AS export
COPY requirements/constraints.txt /requirements/
COPY requirements/locked/hashes.txt /requirements/locked/
COPY docker/pip-install scripts/base/wheels.py /usr/local/bin/
# NVIDIA's torch, torchvision and numpy stay; its PIP_CONSTRAINT would block the packages added here.
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    PIP_CONSTRAINT='' pip-install --beside onnx onnxscript onnxruntime safetensors pillow
COPY docker/steps/as-owner /usr/local/bin/
# Its torch asks for the user's name, which the owner of a checkout need not have in here (pytorch 140765).
# NVIDIA's image turns off protobuf's C code, which reads a network many times faster.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/bundle:/bundle/serving HOME=/tmp USER=export \
    PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=upb
# NVIDIA's entrypoint prints a banner.
ENTRYPOINT []
WORKDIR /bundle
USER 1000:1000
