# The stream worker and the command line; without torch, xgboost and pandas. From the repository's root:
#   docker build -f deploy/docker/stream.Dockerfile -t attributary/stream:0.1.0 .
# The demonstration's publisher besides, which trains a model:
#   docker build -f deploy/docker/stream.Dockerfile --target demo -t attributary/demo:0.1.0 .
FROM python:3.12.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY workers workers
COPY service service
RUN python -m venv /opt/attributary \
 && /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[stream]"

FROM build AS build-demo
RUN /opt/attributary/bin/pip install --no-cache-dir -c constraints.txt ".[demo-cpu]"

FROM python:3.12.11-slim-bookworm AS worker
# A volume that is mounted there first belongs to the user, whichever image made it.
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin attributary \
 && install -d -o 10001 -g 10001 /models
ENV PATH=/opt/attributary/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    ATTRIBUTARY_METRICS_HOST=0.0.0.0 \
    ATTRIBUTARY_METRICS_PORT=9108
USER 10001
ENTRYPOINT ["attributary"]

FROM worker AS demo
COPY --from=build-demo /opt/attributary /opt/attributary
CMD ["demo", "--publish-only", "--live", "--models", "/models"]

FROM worker AS stream
COPY --from=build /opt/attributary /opt/attributary
EXPOSE 9108
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9108/healthz', timeout=4)"]
CMD ["stream"]
