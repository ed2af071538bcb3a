# The stream worker and the command line, without torch. Built from the repository's root:
#   docker build -f deploy/docker/stream.Dockerfile -t attributary/stream .
FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY workers workers
COPY service service
RUN python -m venv /opt/attributary \
 && /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[demo]"

FROM python:3.12.11-slim-bookworm
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attributary \
 && install -d -o 10001 -g 10001 /models
COPY --from=build /opt/attributary /opt/attributary
ENV PATH=/opt/attributary/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    ATTRIBUTARY_METRICS_HOST=0.0.0.0 \
    ATTRIBUTARY_METRICS_PORT=9108
USER 10001
EXPOSE 9108
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9108/healthz', timeout=4)"]
ENTRYPOINT ["attributary"]
CMD ["stream"]
