# The client on the gpu flavour: NVIDIA's sdk image with perf_analyzer and tritonclient, and our client.
ARG TRITON_TAG
FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}-py3-sdk
COPY requirements/constraints.txt /requirements/
COPY requirements/locked/hashes.txt /requirements/locked/
COPY docker/pip-install scripts/base/wheels.py /usr/local/bin/
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    pip-install --beside rich
# The perf_analyzer on PATH is a wrapper that shows its arguments in the process list and never fails;
# this is the program that it runs.
RUN python3 -c "from importlib.resources import files; print(files('perf_analyzer'))" \
  | xargs -I{} ln -s {}/bin/perf_analyzer /opt/perf_analyzer
COPY client/bundle_client /opt/bundle/bundle_client
COPY serving/bundle_serving /opt/bundle/bundle_serving
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONPATH=/opt/bundle
# NVIDIA's entrypoint prints a banner to stdout, where the answers go.
ENTRYPOINT []
USER 1000:1000
