# The server on a GPU: NVIDIA's tritonserver, what the Python models need, and the door and the keeper.
ARG TRITON_TAG
FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}-py3 AS server
COPY requirements/locked/serve-gpu.txt requirements/locked/functions.txt requirements/locked/door.txt \
    requirements/locked/hashes.txt /requirements/locked/
COPY docker/pip-install scripts/base/wheels.py /usr/local/bin/
# In folders of their own: none of NVIDIA's packages is replaced.
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache/pip \
    pip-install serve-gpu --target /opt/bundle \
 && pip-install functions --target /opt/functions \
 && rm -rf /opt/functions/pytriton/tritonserver /opt/functions/nvidia_pytriton.libs \
 && pip-install door --target /opt/door
# Compiled now: on a read-only file system, each start would compile its imports again.
RUN python3 -m compileall -q /opt/door
COPY --chmod=755 serving/bundle_door /opt/door/bundle_door
COPY --chmod=755 serving/bundle_keeper /opt/door/bundle_keeper
COPY --chmod=755 serving/bundle_serving kinds/*/serving extensions/*/serving /opt/bundle/bundle_serving/
# The python backend's interpreter ignores PYTHONPATH, but reads .pth files. Triton would make the
# stub executable at its start, but cannot on a read-only file system.
RUN python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
  | xargs -I{} sh -c 'printf "/opt/bundle\n/opt/functions\n" > {}/bundle.pth' \
 && chmod 0755 /opt/tritonserver/backends/python/triton_python_backend_stub \
 && python3 -m compileall -q /opt/bundle/bundle_serving /opt/door/bundle_door /opt/door/bundle_keeper
COPY --chmod=755 docker/steps/as-owner docker/steps/serve /usr/local/bin/
# hadolint ignore=DL3064  # API_KEYS is the path of a file
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 CUPY_CACHE_DIR=/tmp/cupy \
    REPOSITORY=/models TLS_FOLDER=/run/tls API_KEYS=/run/key/api.keys STATE_FOLDER=/state \
    PYTHONPATH=/opt/door${PYTHONPATH:+:$PYTHONPATH}
# A restarted container's tmpfs gets the mode of the folder below it (runc 1.1), and the server's user
# must be able to write there.
# A new volume gets that of the folder that it covers.
RUN install -d -m 1777 /run/triton /run/ports /state
# What is in here, with versions and licences: sbom.json and NOTICE.
ARG VERSION
RUN --mount=type=bind,source=scripts/base/inventory.py,target=/inventory.py \
    PYTHONPATH=/opt/door:/opt/bundle:/opt/functions python3 /inventory.py /usr/share/triton-bundle triton-bundle-server-gpu "$VERSION"
USER 1000:1000
CMD ["serve", "--config-name", "gpu"]
