# The request worker. From the repository's root, for processors alone and for CUDA devices:
#   docker build -f deploy/docker/ondemand.Dockerfile -t attributary/ondemand:0.1.0 .
#   docker build -f deploy/docker/ondemand.Dockerfile --target cuda -t attributary/ondemand:0.1.0-cuda .
# The first opens XGBoost, scikit-learn and ONNX models and asks model servers; it has torch (safetensors, .pt2) with
#   --build-arg TORCH_INDEX=   and the index of torch's CPU wheels, which torch's install page names.
# The second has torch as the package index has it, with CUDA: several gigabytes.
FROM python:3.12.11-slim-bookworm AS source
WORKDIR /src
RUN python -m venv /opt/attributary

FROM source AS build-cpu
ARG TORCH_INDEX=
RUN if [ -n "$TORCH_INDEX" ]; then \
      /opt/attributary/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" torch==2.13.0; \
    fi
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY workers workers
COPY service service
RUN /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[ondemand-cpu]"

FROM source AS build-cuda
RUN /opt/attributary/bin/pip install --no-cache-dir torch==2.13.0
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY workers workers
COPY service service
RUN /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[ondemand]"

FROM python:3.12.11-slim-bookworm AS worker
# A volume that is mounted there first belongs to the user, whichever image made it.
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attributary \
 && install -d -o 10001 -g 10001 /models
ENV PATH=/opt/attributary/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ATTRIBUTARY_METRICS_HOST=0.0.0.0 \
    ATTRIBUTARY_METRICS_PORT=9108
USER 10001
EXPOSE 9108
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9108/healthz', timeout=4)"]
ENTRYPOINT ["attributary"]
CMD ["ondemand"]

FROM worker AS cuda
COPY --from=build-cuda /opt/attributary /opt/attributary

FROM worker AS cpu
COPY --from=build-cpu /opt/attributary /opt/attributary
