# The request worker, with torch. Built from the repository's root:
#   docker build -f deploy/docker/ondemand.Dockerfile -t attributary/ondemand .
# Torch as the package index has it computes on processors and CUDA devices alike. For an image of a quarter of the
# size, without CUDA, add --build-arg TORCH_INDEX= with the index of torch's CPU wheels (its install page names it).
FROM python:3.12.11-slim-bookworm AS build
ARG TORCH_INDEX=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -m venv /opt/attributary \
 && /opt/attributary/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
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
