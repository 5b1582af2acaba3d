# Rehearsal: stands for NVIDIA's tritonserver image. PyPI's server where theirs lies, and in the
# place of the tensorrt backend one that refuses what the real one refuses.
ARG SERVER
FROM ${SERVER}
USER root
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip \
 && rm -rf /var/lib/apt/lists/*
COPY --chmod=0755 images/tritonserver /opt/tritonserver/bin/tritonserver
COPY --chmod=0755 images/nvidia-smi /usr/bin/nvidia-smi
RUN python3 -c "from pathlib import Path; from bundle_serving import start_server as s; \
    s.assemble_backends(s._tritonserver()[0], Path('/opt/tritonserver/backends'))"
COPY tensorrt_backend /opt/tritonserver/backends/tensorrt
ENV PIP_BREAK_SYSTEM_PACKAGES=1
