# Rehearsal: stands for NVIDIA's sdk image. tritonclient, and on PATH perf_analyzer's wrapper, which
# runs the real program as the one of perf_analyzer 2.60.0 does: that of 2.50.0, the last one on PyPI
# that runs on Debian 12.
ARG EXPORT
FROM ${EXPORT}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends libb64-0d \
 && rm -rf /var/lib/apt/lists/*
# What is mounted does not end the cache; this, the hash of it, does.
ARG CONSTRAINTS
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=constraints,target=/constraints.txt \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --no-compile 'tritonclient[all]' -c /constraints.txt \
 && pip install --no-compile --no-deps --target /opt/pip \
        tritonclient==2.50.0 nvidia-cuda-runtime-cu12==12.9.79
ARG PACKAGE=/opt/venv/lib/python3.11/site-packages/perf_analyzer
COPY images/perf_analyzer.py ${PACKAGE}/__init__.py
RUN install -D -m 0755 /opt/pip/bin/perf_analyzer ${PACKAGE}/bin/perf_analyzer \
 && printf '#!/bin/sh\nexec python3 %s "$@"\n' ${PACKAGE}/__init__.py > /usr/local/bin/perf_analyzer \
 && chmod 0755 /usr/local/bin/perf_analyzer
COPY --chmod=0755 images/nvidia_entrypoint.sh /opt/nvidia/nvidia_entrypoint.sh
ENV LD_LIBRARY_PATH=/opt/pip/nvidia/cuda_runtime/lib PYTHONPATH= HOME=/root
WORKDIR /workspace
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
