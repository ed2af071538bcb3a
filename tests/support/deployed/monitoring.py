"""Scraping, alerts and dashboards: from the pods' ports to the name that the rules know the job by."""

from __future__ import annotations

from collections.abc import Iterator

from deployed.cluster import Cluster
from deployed.tree import PROMETHEUS, RULES, documents

_MOST_BYTES = 200_000  # of 262,144 that `kubectl apply` can note down of a ConfigMap


def monitoring_faults(cluster: Cluster) -> Iterator[str]:
    """Return what would not be scraped, alerted or shown."""
    services = cluster.of("Service")
    deployments = {doc["metadata"]["name"] for doc in cluster.of("Deployment")}
    for service in services:
        if cluster.selected(service["spec"]["selector"]) != deployments:
            yield f"the Service {service['metadata']['name']} does not select all workers"
        for port in service["spec"]["ports"]:
            if not _opened(cluster, port["targetPort"]):
                yield f"the Service's {port['targetPort']} is no port of every worker"
    (config,) = documents(cluster.tree[PROMETHEUS])
    for monitor in cluster.of("ServiceMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        chosen = [s for s in services if labels.items() <= s["metadata"]["labels"].items()]
        if len(chosen) != 1:
            yield f"the ServiceMonitor selects {len(chosen)} Services"
            continue
        ports = {port["name"] for port in chosen[0]["spec"]["ports"]}
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in ports:
                yield f"the ServiceMonitor scrapes {endpoint['port']}, the Service has {sorted(ports)}"
        job = chosen[0]["metadata"]["labels"].get(monitor["spec"].get("jobLabel"))
        if job != config["scrape_configs"][0]["job_name"]:
            yield f"the job is called {job}, rules and dashboards know it by another name"
    for rule in cluster.of("PrometheusRule"):
        (rules,) = documents(cluster.tree[RULES])
        if rule["spec"]["groups"] != rules["groups"]:
            yield f"the PrometheusRule is not {RULES}: run python deploy/build.py"
        yield from _dashboard_faults(cluster)


def _dashboard_faults(cluster: Cluster) -> Iterator[str]:
    folder = "deploy/grafana/dashboards/"
    there = {path.removeprefix(folder) for path in cluster.tree if path.startswith(folder)}
    maps = [
        doc
        for doc in cluster.of("ConfigMap")
        if doc["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    if {name for doc in maps for name in doc["data"]} != there:
        yield f"the dashboards' ConfigMap does not hold {sorted(there)}"
    if any(sum(map(len, doc["data"].values())) > _MOST_BYTES for doc in maps):
        yield "the dashboards do not fit into a ConfigMap that can be applied"


def _opened(cluster: Cluster, name: str) -> bool:
    return all(
        any(port["name"] == name for port in container["ports"])
        for doc in cluster.of("Deployment")
        for container in doc["spec"]["template"]["spec"]["containers"]
    )
