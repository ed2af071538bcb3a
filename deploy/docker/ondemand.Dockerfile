# The request worker, with torch. Built from the repository's root, for processors alone by default:
#   docker build -f deploy/docker/ondemand.Dockerfile -t attributary/ondemand .
# and for CUDA devices:
#   docker build -f deploy/docker/ondemand.Dockerfile --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 \
#     -t attributary/ondemand:cuda .
FROM python:3.12.11-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -m venv /opt/attributary \
 && /opt/attributary/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" torch==2.13.0
COPY schemas schemas
COPY workers workers
COPY service service
RUN /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[ondemand]"

FROM python:3.12.11-slim-bookworm
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attributary
COPY --from=build /opt/attributary /opt/attributary
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
