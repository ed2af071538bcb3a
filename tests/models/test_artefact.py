"""Where artefacts may lie, and that what is loaded is what was hashed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
from models import card_of, raises
from pydantic import ValidationError

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.artefact import take_snapshot
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.models import open_model
from attributary.workers.ondemand.policy import LoadPolicy

_DATA = b"the model" * 1000
_SHA256 = hashlib.sha256(_DATA).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "m.ubj").write_bytes(_DATA)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "m.ubj").write_bytes(_DATA)
    return root


def _take(uri: str, *roots: Path, **policy: int) -> bytes:
    snapshot = take_snapshot(Artefact(uri=uri, sha256=_SHA256), LoadPolicy(roots=roots, **policy))
    try:
        return os.pread(snapshot.descriptor, snapshot.size + 1, 0)
    finally:
        snapshot.close()


def test_paths_file_uris_and_paths_below_any_root_are_found(root):
    absolute = str(root / "inner" / "m.ubj")
    for uri in (absolute, f"file://{absolute}", f"file://localhost{absolute}", "inner/m.ubj"):
        assert _take(uri, root.parent / "none", root) == _DATA
    (root / "a b.ubj").write_bytes(_DATA)
    assert _take(f"file://{root}/a%20b.ubj", root) == _DATA


def test_links_inside_a_root_are_followed(root):
    (root / "current").symlink_to("inner")
    (root / "latest.ubj").symlink_to("current/m.ubj")
    assert _take("latest.ubj", root) == _DATA
    outside = root.parent / "link-to-root"
    outside.symlink_to(root)
    assert _take(str(outside / "inner" / "m.ubj"), root) == _DATA
    assert _take("inner/m.ubj", outside) == _DATA


@pytest.mark.parametrize(
    "uri",
    [
        "../secret/m.ubj", "inner/../../secret/m.ubj", "{parent}/secret/m.ubj",
        "file://{parent}/root/%2e%2e/secret/m.ubj", "{parent}/root/../secret/m.ubj", "/etc/passwd",
        "../secret/not-there", "out/m.ubj", "out.ubj", "{parent}/root-other/m.ubj", "..", "/",
        "s3://bucket/m.ubj", "file://elsewhere/m.ubj", "m\0.ubj", "file:///m%00.ubj",
    ],
)  # fmt: skip
def test_what_leads_out_of_the_roots_is_refused(root, uri):
    (root / "out").symlink_to("../secret")
    (root / "out.ubj").symlink_to("../secret/m.ubj")
    (root.parent / "root-other").mkdir()
    (root.parent / "root-other" / "m.ubj").write_bytes(_DATA)
    with raises(ErrorCode.ARTEFACT_REFUSED):
        _take(uri.format(parent=root.parent), root)


def test_without_roots_nothing_is_read(root):
    with raises(ErrorCode.ARTEFACT_REFUSED, "setting 'roots'"):
        _take(str(root / "inner" / "m.ubj"))


def test_what_is_not_there_and_what_may_not_be_read_is_missing(root):
    with raises(ErrorCode.ARTEFACT_MISSING, "no such file"):
        _take("inner/other.ubj", root)
    (root / "dangling.ubj").symlink_to("nowhere")
    with raises(ErrorCode.ARTEFACT_MISSING):
        _take("dangling.ubj", root)
    with raises(ErrorCode.ARTEFACT_MISSING, "names no artefact"):
        open_model(ModelCard(model="m"), LoadPolicy(roots=(root,)))


def test_only_regular_files_are_read_and_none_is_waited_for(root):
    os.mkfifo(root / "pipe.ubj")
    for uri in ("pipe.ubj", "inner", "."):
        with raises(ErrorCode.ARTEFACT_REFUSED, "no regular file"):
            _take(uri, root)


def test_a_file_larger_than_allowed_is_not_read(root):
    with raises(ErrorCode.LIMIT_EXCEEDED, "artefact_bytes"):
        _take("inner/m.ubj", root, artefact_bytes=len(_DATA) - 1)
    assert _take("inner/m.ubj", root, artefact_bytes=len(_DATA)) == _DATA


def test_another_hash_is_a_changed_artefact(root):
    (root / "inner" / "m.ubj").write_bytes(_DATA + b"!")
    with raises(ErrorCode.ARTEFACT_CHANGED, _SHA256):
        _take("inner/m.ubj", root)


def test_the_bytes_stay_those_that_were_hashed(root):
    path = root / "inner" / "m.ubj"
    snapshot = take_snapshot(Artefact(uri=str(path), sha256=_SHA256), LoadPolicy(roots=(root,)))
    path.write_bytes(b"changed")
    path.unlink()
    assert os.pread(snapshot.descriptor, 2 * len(_DATA), 0) == _DATA
    with pytest.raises(PermissionError):
        os.pwrite(snapshot.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(snapshot.descriptor, 1)
    snapshot.close()
    snapshot.close()


def test_folders_that_turn_into_links_never_lead_outside(root):
    """A folder and a link that leads outside change places all the time, the secret has another hash:
    whatever the moment, the answer is the file or a refusal, never the other file's hash."""
    (root.parent / "secret" / "m.ubj").write_bytes(b"secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "inner", root / "kept")
            os.symlink("../secret", root / "inner")
            os.unlink(root / "inner")
            os.rename(root / "kept", root / "inner")

    swapping = threading.Thread(target=swap)
    swapping.start()
    outcomes = set()
    try:
        began = time.monotonic()
        while (took := time.monotonic() - began) < 0.5 or (took < 10 and len(outcomes) < 3):
            try:
                outcomes.add(_take("inner/m.ubj", root))
            except RequestError as error:
                outcomes.add(error.code)
    finally:
        stop.set()
        swapping.join()
    assert outcomes == {_DATA, ErrorCode.ARTEFACT_REFUSED, ErrorCode.ARTEFACT_MISSING}


def test_no_descriptor_is_left(root):
    before = len(os.listdir("/dev/fd"))
    for uri in ("inner/m.ubj", "inner", "inner/none", "../secret/m.ubj"):
        for policy in ({}, {"artefact_bytes": 10}):
            with contextlib.suppress(RequestError):
                _take(uri, root, **policy)
    assert len(os.listdir("/dev/fd")) == before


def test_a_file_needs_its_hash_and_a_server_does_not():
    with pytest.raises(ValidationError, match="needs its sha256"):
        Artefact(uri="/models/m.ubj")
    assert Artefact(uri="http://host/v2/models/m").sha256 is None


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.PICKLE", "m.sav", "m.pth", "m.dill"])
def test_pickles_are_refused_by_their_names_before_they_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(_DATA)
    with raises(ErrorCode.ARTEFACT_REFUSED, "run code", "skops", "safetensors", "save_model"):
        open_model(card_of(tmp_path / name), LoadPolicy(roots=(tmp_path,)))


def test_a_name_that_tells_no_format_needs_one(tmp_path):
    (tmp_path / "model").write_bytes(_DATA)
    with raises(ErrorCode.MODEL_NOT_LOADABLE, "'format'", ".ubj"):
        open_model(card_of(tmp_path / "model"), LoadPolicy(roots=(tmp_path,)))
