# The server on a GPU: NVIDIA's tritonserver, and what the Python models need.
ARG TRITON_TAG
FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}-py3 AS server
COPY requirements/locked/serve-gpu.txt requirements/locked/cupy.txt requirements/locked/hashes.txt \
    /requirements/locked/
COPY docker/pip-install scripts/base/wheels.py /usr/local/bin/
ARG POSTPROCESS=cpu
# In a folder of their own: none of NVIDIA's packages is replaced.
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    if [ "$POSTPROCESS" = gpu ]; then set -- cupy; fi; \
    pip-install serve-gpu "$@" --target /opt/bundle
COPY serving/bundle_serving kinds/*/serving extensions/*/serving /opt/bundle/bundle_serving/
# The python backend's interpreter ignores PYTHONPATH, but reads .pth files. Triton would make the
# stub executable at its start, but cannot on a read-only file system.
RUN python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
  | xargs -I{} sh -c 'echo /opt/bundle > {}/bundle.pth' \
 && chmod 0755 /opt/tritonserver/backends/python/triton_python_backend_stub
COPY docker/steps/as-owner /usr/local/bin/
# cupy compiles with the compiler and headers from its wheels: both must be of the same version, and
# the image's are not.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 REPOSITORY=/models CUPY_CACHE_DIR=/tmp/cupy \
    CUDA_PATH=/opt/bundle/nvidia/cuda_runtime \
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/opt/bundle/nvidia/cuda_nvrtc/lib
# A restarted container's tmpfs gets the mode of the folder below it (runc 1.1), and the server's user
# must be able to write there.
RUN install -d -m 1777 /run/triton
# What is in here, with versions and licences: sbom.json and NOTICE.
ARG VERSION
RUN --mount=type=bind,source=scripts/base/inventory.py,target=/inventory.py \
    PYTHONPATH=/opt/bundle python3 /inventory.py /usr/share/triton-bundle triton-bundle-server-gpu "$VERSION"
USER 1000:1000
CMD ["python3", "-m", "bundle_serving.start_server", \
     "--run-dir", "/run/triton", "--admin-key-file", "/run/key/admin.key", \
     "--address", "0.0.0.0", "--config-name", "gpu"]
