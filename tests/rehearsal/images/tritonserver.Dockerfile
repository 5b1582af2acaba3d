# Rehearsal: stands for NVIDIA's tritonserver image. PyPI's server where theirs lies; in the place of
# the tensorrt and fil backends ones that refuse what the real ones refuse, and in that of the dali
# backend the real DALI, which can do without a GPU.
ARG EXPORT
ARG SERVER
FROM ${EXPORT} AS dali
USER root
# The version that the backend's own DALI_VERSION names for 26.06, the last one published; of what it
# needs, that without which it decodes nothing on a CPU.
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --no-compile --no-deps --target /wheel \
        nvidia-dali-cuda130==2.1.1 nvidia-nvimgcodec-cu13==0.7.0.11 astunparse==1.6.3 gast==0.7.0 \
        makefun==1.16.0 nvtx==0.2.17 optree==0.20.0 packaging==26.0 six==1.17.0 \
        typing_extensions==4.16.0 wheel==0.48.0

# What the backend named fil computes with.
FROM ${EXPORT} AS fil
USER root
# What is mounted does not end the cache; this, the hash of it, does.
ARG CONSTRAINTS
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=constraints,target=/constraints.txt \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    grep -E '^(treelite|packaging|scipy)==' /constraints.txt > /tmp/fil.txt \
 && pip install --no-compile --no-deps --target /wheel -r /tmp/fil.txt

FROM ${SERVER} AS loads
USER root
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY images/loads.c /
RUN gcc -Wall -shared -fPIC -o /loads.so /loads.c

FROM ${SERVER}
USER root
# Their python3 has pip.
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/lib/python3/dist-packages/pip "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
COPY --chmod=0755 images/tritonserver /opt/tritonserver/bin/tritonserver
COPY --chmod=0755 images/nvidia-smi /usr/bin/nvidia-smi
COPY --chmod=0755 images/nvidia_entrypoint.sh /opt/nvidia/nvidia_entrypoint.sh
RUN python3 -c "from pathlib import Path; from bundle_serving.process import start_server as s; \
    s.assemble_backends(s._tritonserver()[0], Path('/opt/tritonserver/backends'))" \
 && cd /opt/tritonserver/backends/python \
 && mv stub/triton_python_backend_stub . && rmdir stub
COPY --from=dali /wheel /opt/tritonserver/backends/dali/wheel/dali
COPY tensorrt_backend /opt/tritonserver/backends/tensorrt
COPY dali_backend /opt/tritonserver/backends/dali
COPY fil_backend /opt/tritonserver/backends/fil
COPY --from=loads /loads.so /opt/tritonserver/lib/
COPY --from=fil /wheel /opt/tritonserver/backends/fil/wheel
ENV PIP_BREAK_SYSTEM_PACKAGES=1 PYTHONPATH=/opt/tritonserver/backends/dali/wheel/dali
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
