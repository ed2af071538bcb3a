"""A model's file: found under the allowed roots, and held as the very bytes that were hashed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from attributary.schemas.card import Artefact
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.memory import nameless_file, seal
from attributary.workers.ondemand.policy import LoadPolicy

_CHUNK = 2**20


class Snapshot:
    """A file's bytes at the moment when they were hashed, in memory, under ``descriptor``.

    Whatever happens to the file later, this is what is loaded, also after a restart. On Linux the
    memory is sealed: nobody can change it, the model's process included.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def close(self) -> None:
        """Give the memory back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def is_server(uri: str) -> bool:
    """Say whether the artefact is a model server's address."""
    return uri.startswith(("http://", "https://"))


def take_snapshot(artefact: Artefact, policy: LoadPolicy) -> Snapshot:
    """Return the bytes of the artefact's file, which hash to its sha256.

    RequestError: artefact_refused (not under a root, no regular file), artefact_missing,
    artefact_changed (another sha256), limit_exceeded (larger than ``artefact_bytes``).
    """
    source = _open(artefact.uri, policy.roots)
    try:
        found = os.fstat(source)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(artefact.uri, "it is no regular file")
        if found.st_size > policy.artefact_bytes:
            raise _too_large(artefact.uri, found.st_size, policy)
        return _copy(source, artefact, policy)
    finally:
        os.close(source)


def _open(uri: str, roots: tuple[Path, ...]) -> int:
    try:
        return _open_below(*_locate(uri, roots))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refused(uri, "its path became a link while it was opened") from error
        raise RequestError(
            ErrorCode.ARTEFACT_MISSING,
            f"artefact {uri!r} cannot be opened: {os.strerror(error.errno or 0)}",
        ) from error


def _locate(uri: str, roots: tuple[Path, ...]) -> tuple[str, str]:
    """Return the root that the artefact lies under and its path below it, both without links."""
    path = _path(uri)
    if not roots:
        raise _refused(uri, "no folder is allowed: name some in the models' setting 'roots'")
    missing = False
    for root in roots:
        real_root = os.path.realpath(root)
        real = os.path.realpath(os.path.join(real_root, path))
        below = os.path.relpath(real, real_root)
        if below.split(os.sep)[0] == os.pardir:
            continue
        if os.path.lexists(real):
            return real_root, below
        missing = True
    if missing:
        raise RequestError(
            ErrorCode.ARTEFACT_MISSING, f"artefact {uri!r}: there is no such file under the roots"
        )
    raise _refused(uri, "it lies outside the folders in the models' setting 'roots'")


def _path(uri: str) -> str:
    if "\0" in uri:
        raise _refused(uri, "its path holds a null character")
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise _refused(
            uri, "expected a path, file:///path or http(s)://host/v2/models/NAME; copy it to a root"
        )
    path = unquote(parts.path)
    if "\0" in path:
        raise _refused(uri, "its path holds a null character")
    return path


def _open_below(root: str, below: str) -> int:
    """Open the file step by step, following no link: what was a folder a moment ago may be one now."""
    *folders, name = below.split(os.sep)
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(folder, flags, dir_fd=at)
            os.close(at)
            at = inner
        # Without O_NONBLOCK, opening a FIFO would wait for its writer.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def _copy(source: int, artefact: Artefact, policy: LoadPolicy) -> Snapshot:
    target = nameless_file()
    try:
        digest, size = hashlib.sha256(), 0
        while chunk := os.read(source, _CHUNK):
            size += len(chunk)
            if size > policy.artefact_bytes:
                raise _too_large(artefact.uri, size, policy)
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(target, view) :]
        if digest.hexdigest() != artefact.sha256:
            raise RequestError(
                ErrorCode.ARTEFACT_CHANGED,
                f"artefact {artefact.uri!r} has sha256 {digest.hexdigest()}, its card says "
                f"{artefact.sha256}: register the model again if the new file is right",
            )
        seal(target)
    except BaseException:
        os.close(target)
        raise
    return Snapshot(target, size)


def _refused(uri: str, why: str) -> RequestError:
    return RequestError(ErrorCode.ARTEFACT_REFUSED, f"artefact {uri!r} is refused: {why}")


def _too_large(uri: str, size: int, policy: LoadPolicy) -> RequestError:
    return RequestError(
        ErrorCode.LIMIT_EXCEEDED,
        f"artefact {uri!r} has {size} bytes or more, the models' setting 'artefact_bytes' allows "
        f"{policy.artefact_bytes}",
    )
