"""Models that misbehave in their process: each a typed error, the worker alive, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from command import wait_until
from models import open_file, raises

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand import landlock, model_child, models
from attributary.workers.ondemand.channel import Area, Frame, FrameSocket, Kind
from attributary.workers.ondemand.errors import OutOfMemoryError
from attributary.workers.ondemand.gateway import Gateway
from attributary.workers.ondemand.loaders.loaded import LoadedModel

pytestmark = pytest.mark.timeout(120)

GOOD = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
BAD = -GOOD
_LIBRARY = Path(__file__).parents[1] / "support" / "hostile_library"


@pytest.fixture(autouse=True)
def hostile_library(monkeypatch):
    """Models' processes, which get this process's import path, find the library that misbehaves."""
    monkeypatch.syspath_prepend(str(_LIBRARY))


def _save(folder: Path, how: str) -> Path:
    path = folder / f"{how}.json"
    path.write_text(json.dumps({"how": how}))
    return path


def _open(folder: Path, how: str, **policy):
    return open_file(_save(folder, how), policy)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(autouse=True)
def before():
    """The processes from before a test (a broker that other tests share); it leaves no more."""
    before = _children()
    yield before
    wait_until(lambda: _children() <= before, 5.0)


def _well(model) -> bool:
    return bool((model(GOOD) == GOOD.sum(1)).all())


def test_a_process_that_ends_is_an_error_and_the_next_call_starts_another(tmp_path):
    """The file may change or go meanwhile: the new process gets the bytes that were hashed."""
    with _open(tmp_path, "exit") as model:
        assert _well(model)
        (tmp_path / "exit.json").write_bytes(b"another")
        with raises(ErrorCode.MODEL_FAILED, "exit code 3", "leaving without a word"):
            model(BAD)
        assert not model.alive
        assert _well(model)
        assert model.alive


def test_a_process_that_crashes_names_its_signal(tmp_path):
    with _open(tmp_path, "crash") as model, raises(ErrorCode.MODEL_FAILED, "SIGSEGV"):
        model(BAD)


def test_a_process_that_ends_or_hangs_while_it_loads_is_an_error(tmp_path):
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "exit code 5"):
        _open(tmp_path, "exit_on_load")
    with raises(ErrorCode.LIMIT_EXCEEDED, "2 s"):
        _open(tmp_path, "sleep_on_load", load_seconds=2)


def test_a_library_that_is_not_installed_names_the_extra_that_has_it(tmp_path, monkeypatch):
    library = tmp_path / "library"
    library.mkdir()
    (library / "xgboost.py").write_text("raise ModuleNotFoundError('no', name='xgboost')")
    monkeypatch.syspath_prepend(str(library))
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "needs xgboost", "'attributary[ondemand]'"):
        _open(tmp_path, "exit")


@pytest.mark.parametrize("how", ["forged", "noise"])
def test_a_process_that_breaks_the_protocol_is_ended(tmp_path, how):
    with _open(tmp_path, how) as model:
        with raises(ErrorCode.MODEL_FAILED):
            model(BAD)
        assert _well(model)


@pytest.mark.parametrize("how", ["sleep", "spin"])
def test_a_process_that_hangs_is_ended(tmp_path, how, before):
    with _open(tmp_path, how, call_seconds=0.5) as model:
        started = time.monotonic()
        with raises(ErrorCode.LIMIT_EXCEEDED, "0.5 s"):
            model(BAD)
        assert time.monotonic() - started < 5
        assert _children() <= before
        assert _well(model)


def test_a_process_that_grows_is_stopped_by_the_kernel_or_the_watch(tmp_path):
    with _open(tmp_path, "allocate", memory_bytes=600 * 2**20) as model:
        with raises(ErrorCode.LIMIT_EXCEEDED, "memory_bytes"):
            model(BAD)
        assert _well(model)


def test_the_watch_alone_ends_a_process_that_grows(tmp_path):
    """As on a GPU, where the kernel's limit does not hold: the model's process is given more than it is
    watched for."""
    with _open(tmp_path, "allocate", memory_bytes=2**40) as model:
        model._process._memory_bytes = 500 * 2**20
        with raises(ErrorCode.LIMIT_EXCEEDED, "it was ended"):
            model(BAD)


def test_batches_fit_the_memory_of_the_process(tmp_path, caplog):
    """A row takes 8 MiB of 500: it is measured, and where it was not, batches are halved until they fit."""
    with _open(tmp_path, "heavy", memory_bytes=500 * 2**20) as model:
        footprint = model.measure(BAD[:1])
        assert footprint.row_bytes == pytest.approx(8 * 2**20, rel=0.2)
        assert 300 * 2**20 < footprint.free_bytes < 500 * 2**20
        for known, rows in ((True, 16), (False, 45)):
            caplog.clear()
            with pytest.MonkeyPatch.context() as patch:
                if not known:
                    patch.setattr(model, "measure", lambda x: None)
                gateway = Gateway(lambda: model, batch_rows=256, tree_batch_rows=256)
                found = gateway.evaluate(np.full((20 if known else 90, 2), -1.0), lambda: None)
            assert (found == 2**20).all()
            assert gateway.rows == rows
            halved = [record for record in caplog.records if "halved" in record.message]
            assert len(halved) == (0 if known else 1)
            assert model.alive, "what it does not get is an error, not its end"


def test_a_process_killed_from_outside_has_found_no_memory(tmp_path):
    with _open(tmp_path, "kill") as model:
        with pytest.raises(OutOfMemoryError, match="SIGKILL") as caught:
            model(BAD)
        assert caught.value.code == ErrorCode.MODEL_FAILED
        assert _well(model)


def test_what_a_model_starts_ends_with_it(tmp_path):
    with _open(tmp_path, "leave_a_child") as model:
        with raises(ErrorCode.MODEL_FAILED, "exit code 4") as caught:
            model(BAD)
        grandchild = int(str(caught.value).rpartition(" ")[2])
        wait_until(lambda: not psutil.pid_exists(grandchild), 5.0)


def test_printing_disturbs_nothing(tmp_path, capfd):
    with _open(tmp_path, "print") as model:
        assert (model(BAD) == BAD.sum(1)).all()
        assert _well(model)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("raise", ErrorCode.MODEL_FAILED, "ValueError: cannot divide the universe"),
        ("system_exit", ErrorCode.MODEL_FAILED, "SystemExit"),
        ("nan", ErrorCode.BAD_OUTPUT, "2 rows (row 1, 3)"),
        ("short", ErrorCode.BAD_OUTPUT, "shape (3,) for 4 rows"),
        ("deep", ErrorCode.BAD_OUTPUT, "shape (4, 2, 2, 2)"),
        ("wide", ErrorCode.LIMIT_EXCEEDED, "max_outputs"),
        ("other_width", ErrorCode.BAD_OUTPUT, "3 outputs, and with 1 before"),
        ("text", ErrorCode.BAD_OUTPUT, "expected numbers"),
        ("flood", ErrorCode.MODEL_FAILED, "File too large"),
    ],
)
def test_what_a_model_answers_wrongly_is_an_error_and_it_goes_on(tmp_path, how, code, said):
    with _open(tmp_path, how) as model:
        assert _well(model)
        with raises(code, said):
            model(BAD)
        assert model.alive
        assert _well(model)


@pytest.mark.skipif(landlock.version() < landlock.FULL, reason="needs a kernel with Landlock 6")
@pytest.mark.parametrize("how", ["write", "execute", "connect", "signal"])
def test_the_kernel_keeps_a_model_from_what_none_needs(tmp_path, how):
    with _open(tmp_path, how) as model:
        with raises(ErrorCode.MODEL_FAILED, "PermissionError"):
            model(BAD)
        assert _well(model)


def test_shared_memory_cannot_be_taken_away(tmp_path):
    with _open(tmp_path, "shrink") as model:
        assert (model(BAD) == BAD.sum(1)).all()
        assert _well(model)


def test_a_model_sees_none_of_the_workers_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_CONNECTION__SASL__PASSWORD", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with _open(tmp_path, "environment") as model, raises(ErrorCode.MODEL_FAILED) as caught:
        model(BAD)
    seen = str(caught.value).split("ValueError: ")[1].split()
    assert "PATH" in seen
    assert not [name for name in seen if name.startswith(("ATTRIBUTARY", "AWS"))]


def test_closing_from_another_thread_ends_a_call_under_way(tmp_path):
    model = _open(tmp_path, "sleep")
    closing = threading.Timer(0.3, model.close)
    closing.start()
    with raises(ErrorCode.MODEL_FAILED, "closed"):
        model(BAD)
    closing.join()
    with raises(ErrorCode.MODEL_FAILED, "closed"):
        model(GOOD)
    model.close()


def test_no_descriptor_or_memory_is_left(tmp_path):
    path = _save(tmp_path, "exit")
    _open(tmp_path, "exit").close()
    before = sorted(os.listdir("/dev/fd"))
    for _ in range(2):
        with open_file(path) as model:
            assert _well(model)
            with raises(ErrorCode.MODEL_FAILED):
                model(BAD)
            assert _well(model)
    with raises(ErrorCode.MODEL_NOT_LOADABLE):
        open_file(_save(tmp_path, "exit_on_load"))
    assert sorted(os.listdir("/dev/fd")) == before


def test_a_model_opened_in_a_thread_outlives_the_thread_and_dies_with_the_worker(tmp_path):
    path = _save(tmp_path, "exit")
    code = (
        "import sys, threading, time\n"
        f"sys.path[:0] = [{str(_LIBRARY)!r}, {str(_LIBRARY.parent)!r}]\n"
        "from pathlib import Path\n"
        "from models import open_file\n"
        "opened = []\n"
        f"thread = threading.Thread(target=lambda: opened.append(open_file(Path({str(path)!r}))))\n"
        "thread.start(); thread.join(); time.sleep(0.2)\n"
        "print(opened[0].alive, opened[0]._process._process.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        alive, pid = worker.stdout.readline().split()
        assert alive == "True"
        assert psutil.pid_exists(int(pid))
        os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(int(pid)), 5.0)


def test_the_memory_that_it_holds_is_seen_from_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_PATIENCE_SECONDS", 0.05)
    with _open(tmp_path, "sleep", call_seconds=2) as model:
        own = psutil.Process(model._process._process.pid).memory_info().rss
        assert 10 * 2**20 < model.resident() == pytest.approx(own, rel=0.2)
        assert model.device_memory() is None, "main memory is no device's"
        asking = threading.Thread(target=lambda: raises_limit(model))
        asking.start()
        wait_until(model._calling.locked, 5.0)
        started = time.monotonic()
        assert model.device_memory() is None
        assert time.monotonic() - started < 1.0, "who looks does not wait for a call"
        asking.join()
        assert (model.resident(), model.device_memory()) == (0, None)
    assert model.resident() == 0


def raises_limit(model) -> None:
    with raises(ErrorCode.LIMIT_EXCEEDED, "2 s"):
        model(BAD)


@pytest.mark.parametrize("used", [None, 5 * 2**30])
def test_a_process_says_what_is_in_use_on_its_device(used, monkeypatch):
    monkeypatch.setattr(model_child, "limit_cpu", lambda seconds: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        area = Area()
        child = model_child._Child(FrameSocket(theirs), area, area, -1)
        tells = None if used is None else lambda: used
        child._model = LoadedModel(predict=np.asarray, precision="float64", used=tells)
        child._compute(Frame(Kind.MEMORY, (0, 0, 0), b""))
        assert FrameSocket(ours).receive() == Frame(Kind.USED, (used or 0, 0, 0), b"")
        area.close()
