"""What goes wrong before anything runs: one line that names the fix, and no traceback."""

from __future__ import annotations

import json
import socket

import pytest
from command import Running, error_line, run

from attributary.schemas.topics import Topics
from attributary.service.embedded import free_port

pytestmark = pytest.mark.timeout(90)


@pytest.mark.parametrize("command", [["stream"], ["topics", "create"], ["topics", "check"]])
def test_no_broker(command):
    address = f"127.0.0.1:{free_port()}"
    assert error_line(run("--bootstrap", address, *command)) == (
        f"error: no broker at {address} (connection refused): start one with `attributary up`, "
        "or name yours with `attributary --bootstrap HOST:PORT`"
    )


def test_no_broker_where_up_should_use_one():
    address = f"127.0.0.1:{free_port()}"
    result = run("up", "--bootstrap", address)
    assert error_line(result).startswith(f"error: no broker at {address} (connection refused)")


@pytest.mark.integration
@pytest.mark.parametrize("command", [["stream"], ["topics", "check"]])
def test_topics_that_are_not_there(broker, command):
    line = error_line(run("--bootstrap", broker.bootstrap, "--prefix", "no-such.", *command))
    assert f"error: the broker at {broker.bootstrap} lacks the topics no-such.rows, " in line
    assert "run `attributary topics create`" in line


@pytest.mark.integration
def test_topics_are_created_and_then_there(broker, topic_names):
    prefix = topic_names.rows.removesuffix("rows")
    common = ["--bootstrap", broker.bootstrap, "--prefix", prefix, "topics"]
    first = run(*common, "create")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines() == [
        f"created  {name}" for name in topic_names.model_dump().values()
    ]
    again = run(*common, "create", "--partitions", "2")
    assert again.stdout.count("exists ") == len(Topics.model_fields)
    assert f"differs  {topic_names.rows} has 4 partitions, the settings say 2" in again.stdout
    assert run(*common, "check").stdout == f"all {len(Topics.model_fields)} topics are there\n"


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        line = error_line(run("up", "--port", port))
    assert line.startswith(f"error: port {port} is in use: choose another with --port (0 takes")


def test_a_metrics_port_in_use_stops_everything():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        running = Running("up", "--port", "0", "--metrics-port", port)
        try:
            assert running.wait(30.0) == 2
            assert running.alive() == []
        finally:
            running.close()
    reason = f"stream-1  error: cannot serve metrics on 127.0.0.1:{port} (address already in use)"
    assert reason in running.output
    assert "Traceback" not in running.output
    assert running.lines[-1] == (
        "error: stream-1 ended by itself (exit code 2); its last lines are above"
    )


@pytest.mark.parametrize("command", [["up"], ["stream"], ["topics", "create"]])
def test_an_unknown_setting(command):
    assert error_line(run(*command, ATTRIBUTARY_INGEST__FLUSH_SECOND="1")) == (
        "error: unknown environment variable ATTRIBUTARY_INGEST__FLUSH_SECOND: "
        "did you mean ATTRIBUTARY_INGEST__FLUSH_SECONDS?"
    )


@pytest.mark.parametrize("command", [["up"], ["stream"], ["topics", "check"]])
def test_a_setting_that_cannot_work(command, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text("[merge]\npublish_seconds = 0\n")
    assert error_line(run("--config", str(path), *command)) == (
        f"error: {path}: merge.publish_seconds: input should be greater than 0, got 0"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap", "nowhere", "stream"], "broker address 'nowhere': expected host:port"),
        (["--config", "/no/such/file", "up"], "settings file /no/such/file: No such file"),
        (["--prefix", "a b", "topics", "create"], "topic name 'a brows' of rows: expected"),
        (["up", "--port", "99999"], "99999 is not in the range"),
        (["up", "--workers", "0"], "0 is not in the range"),
        (["stream", "--role", "cook"], "'cook' is not one of 'ingest', 'merge'"),
        (["strem"], "did you mean 'stream'?"),
    ],
)
def test_an_argument_that_cannot_work(arguments, said):
    assert said in error_line(run(*arguments))


def test_the_settings_can_be_listed():
    listed = run("stream", "--help-settings")
    assert listed.returncode == 0
    assert "ATTRIBUTARY_INGEST__FLUSH_SECONDS=1.0" in listed.stdout
    assert "ATTRIBUTARY_CONNECTION__BOOTSTRAP=localhost:9092" in listed.stdout


@pytest.mark.parametrize("command", ["ondemand", "up"])
def test_a_folder_of_models_that_is_not_there(command, tmp_path):
    """A worker that cannot open any model would answer what another worker could."""
    (tmp_path / "file").touch()
    common = ["--bootstrap", f"127.0.0.1:{free_port()}", command]
    for name, why in {"none": "does not exist: create or mount it", "file": "is no folder"}.items():
        root = str(tmp_path / name)
        line = error_line(run(*common, "--model-root", str(tmp_path), "--model-root", root))
        assert line.startswith(f"error: the models' folder {root!r} {why}")
        assert line.endswith("or name another (--model-root, the models' setting 'roots')")
        line = error_line(run(*common, ATTRIBUTARY_MODELS__ROOTS=json.dumps([root])))
        assert line.startswith(f"error: the models' folder {root!r} {why}")


def test_a_device_that_is_none():
    line = error_line(run("ondemand", "--device", "gpu"))
    assert line == "error: --device is cpu or cuda:N, such as cuda:0; got 'gpu'"


def test_a_device_that_is_not_there():
    pytest.importorskip("torch")
    line = error_line(run("ondemand", "--device", "cuda:0", CUDA_VISIBLE_DEVICES=""))
    assert line.startswith("error: --device cuda:0: torch sees 0 CUDA devices here, and is built ")
    assert line.endswith("CUDA_VISIBLE_DEVICES and torch's build, or use --device cpu")
