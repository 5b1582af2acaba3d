# Rehearsal: stands for NVIDIA's pytorch image. A PyTorch without a GPU, and a trtexec that is as
# strict about its options as the real one, with NVIDIA's own parser and builder in it.
ARG EXPORT
FROM ${EXPORT}
USER root
# What is mounted does not end the cache; this, the hash of it, does.
ARG CONSTRAINTS
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=constraints,target=/constraints.txt \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    grep '^tensorrt-rtx' /constraints.txt > /tmp/rtx.txt \
 && pip install --no-compile --no-deps -r /tmp/rtx.txt
COPY *.py *.txt /opt/tensorrt/rehearsal/
COPY tensorrt_backend /opt/tensorrt/rehearsal/tensorrt_backend
COPY --chmod=0755 images/trtexec /opt/tensorrt/bin/trtexec
COPY --chmod=0755 images/nvidia-smi /usr/bin/nvidia-smi
COPY --chmod=0755 images/nvidia_entrypoint.sh /opt/nvidia/nvidia_entrypoint.sh
ENV PATH=/opt/tensorrt/bin:$PATH PIP_CONSTRAINT=/etc/pip/constraint.txt \
    PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python
RUN mkdir /etc/pip && echo 'onnx==0.0.0' > /etc/pip/constraint.txt
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]
