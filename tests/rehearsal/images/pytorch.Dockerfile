# Rehearsal: stands for NVIDIA's pytorch image. A PyTorch without a GPU, and a trtexec that is as
# strict about its options as the real one.
ARG EXPORT
FROM ${EXPORT}
USER root
COPY *.py *.txt /opt/tensorrt/rehearsal/
COPY tensorrt_backend /opt/tensorrt/rehearsal/tensorrt_backend
COPY --chmod=0755 images/trtexec /opt/tensorrt/bin/trtexec
COPY --chmod=0755 images/nvidia-smi /usr/bin/nvidia-smi
ENV PATH=/opt/tensorrt/bin:$PATH PIP_CONSTRAINT=/etc/pip/constraint.txt
RUN mkdir /etc/pip && echo 'onnx==0.0.0' > /etc/pip/constraint.txt
