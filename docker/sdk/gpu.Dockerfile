# What measures on the gpu flavour: NVIDIA's sdk image, which has perf_analyzer.
ARG TRITON_TAG
FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}-py3-sdk
# The perf_analyzer on PATH is a wrapper that shows its arguments in the process list and never fails;
# this is the program that it runs.
RUN python3 -c "from importlib.resources import files; print(files('perf_analyzer'))" \
  | xargs -I{} ln -s {}/bin/perf_analyzer /opt/perf_analyzer
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# NVIDIA's entrypoint prints a banner to stdout, where the answers go.
ENTRYPOINT []
USER 1000:1000
