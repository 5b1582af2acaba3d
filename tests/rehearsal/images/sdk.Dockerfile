# Rehearsal: stands for NVIDIA's sdk image. tritonclient, and the real perf_analyzer on PATH: that of
# 2.50.0, the last one on PyPI that runs on Debian 12.
ARG EXPORT
FROM ${EXPORT}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends libb64-0d \
 && rm -rf /var/lib/apt/lists/*
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --no-compile 'tritonclient[all]' -c /requirements/constraints.txt \
 && pip install --no-compile --no-deps --target /opt/perf_analyzer \
        tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.9.79 \
 && install -m 0755 /opt/perf_analyzer/bin/perf_analyzer /usr/local/bin/perf_analyzer
ENV LD_LIBRARY_PATH=/opt/perf_analyzer/nvidia/cuda_runtime/lib PYTHONPATH= HOME=/root
WORKDIR /workspace
