"""What a process shows over HTTP."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from attributary.schemas.errors import ConfigurationError
from attributary.service.exposition import Exposition


@pytest.fixture
def exposition():
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    with Exposition(registry) as serving:
        yield serving


def _get(exposition: Exposition, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{exposition.port}{path}", timeout=5
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_what_the_registry_holds(exposition):
    assert exposition.url == f"http://127.0.0.1:{exposition.port}/metrics"
    status, text = _get(exposition, "/metrics")
    assert status == 200
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert ("things_total", 3.0) in [(sample.name, sample.value) for sample in samples]


def test_ready_only_after_it_was_said(exposition):
    assert _get(exposition, "/healthz") == (200, "ok\n")
    assert _get(exposition, "/readyz") == (503, "starting\n")
    exposition.ready()
    assert _get(exposition, "/readyz") == (200, "ready\n")


def test_an_event_loop_that_hangs_is_not_healthy(exposition, monkeypatch):
    exposition.beat()
    assert _get(exposition, "/healthz") == (200, "ok\n")
    _, text = _get(exposition, "/metrics")
    (beat,) = [line for line in text.splitlines() if line.startswith("attributary_heartbeat")]
    assert abs(float(beat.split()[1]) - time.time()) < 10
    monkeypatch.setattr("attributary.service.exposition.STALLED_SECONDS", 0.0)
    time.sleep(0.01)
    assert _get(exposition, "/healthz") == (503, "stalled for 0 s\n")
    monkeypatch.undo()
    exposition.beat()
    assert _get(exposition, "/healthz") == (200, "ok\n")


def test_other_paths_are_not_found(exposition):
    assert _get(exposition, "/")[0] == 404
    assert _get(exposition, "/metrics/../etc/passwd")[0] == 404


def test_a_port_in_use_is_one_line_that_names_the_fix(exposition):
    with pytest.raises(ConfigurationError) as caught:
        Exposition(CollectorRegistry(), port=exposition.port)
    assert str(caught.value) == (
        f"cannot serve metrics on 127.0.0.1:{exposition.port} (address already in use): "
        "choose another --metrics-port (0 takes a free one) or --metrics-host"
    )


def test_a_host_that_is_none_is_one_line():
    with pytest.raises(
        ConfigurationError, match=r"cannot serve metrics on no-such-host\.invalid:0"
    ):
        Exposition(CollectorRegistry(), host="no-such-host.invalid")


def test_clients_that_say_nothing_take_a_bounded_number_of_threads(exposition):
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", exposition.port)) for _ in range(40)]
    time.sleep(0.5)
    assert threading.active_count() - before <= 8
    for connection in idle:
        connection.close()
    deadline = time.monotonic() + 5
    while True:  # and they leave room again
        try:
            assert _get(exposition, "/healthz")[0] == 200
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_after_the_end_nothing_listens():
    with Exposition(CollectorRegistry()) as serving:
        port = serving.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    Exposition(CollectorRegistry(), port=port).close()  # the port is free at once
