"""What a file really is, whatever it is called: nothing that runs code gets to a loader by its name."""

from __future__ import annotations

import pickletools
import zipfile
import zlib
from io import BytesIO
from typing import Literal

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.loaded import Content, not_loadable

Kind = Literal["pickle", "compressed", "torch pickle", "torchscript", "torch-export", "other"]

ALTERNATIVES = (
    "save the model as XGBoost UBJ (model.save_model('m.ubj')), with skops (skops.io.dump), as ONNX, "
    "or its weights as safetensors (docs/models.md)"
)
_SUFFIXES = (".pkl", ".pickle", ".joblib")
_COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda", b"BZh", b"\xfd7zXZ\0", b"]\0\0",
               b"\x04\"M\x18", b"\x28\xb5\x2f\xfd")  # fmt: skip
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_PICKLE_BYTES = 2**16
_MEMBERS = 100_000


def refuse_code(source: Content) -> None:
    """Refuse what can run code when it is opened, unless it is the format that the operator allowed."""
    content = identify(source)
    if content == source.format or content == "other":
        return
    what = {
        "pickle": "it is a pickle, which runs code when it is opened",
        "compressed": "it is a compressed file, as joblib writes its pickles",
        "torch pickle": "it is what torch.save writes, a pickle, which runs code when it is opened",
    }.get(content, f"it is a {content} file, which can run code, and not {source.format}")
    raise RequestError(
        ErrorCode.ARTEFACT_REFUSED, f"artefact {source.uri!r} is refused: {what}; {ALTERNATIVES}"
    )


def identify(source: Content) -> Kind:
    """Tell a pickle and the archives of torch from everything else, by the bytes."""
    head = source.read(_PICKLE_BYTES)
    if head.startswith(_ZIP):
        return _archive(source)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return "other"  # safetensors: its first bytes are a length, and may look like anything
    if head.startswith(_COMPRESSED):
        return "compressed"
    return "pickle" if _is_pickle(head) else "other"


def open_archive(source: Content) -> zipfile.ZipFile:
    """Return the zip archive. RequestError: it is none, or holds more than is allowed."""
    try:
        archive = zipfile.ZipFile(BytesIO(source.read()))
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError) as error:
        raise not_loadable(
            f"artefact {source.uri!r} is not a whole zip archive: {error}"
        ) from error
    members = archive.infolist()
    unpacked = sum(member.file_size for member in members)
    if len(members) > _MEMBERS or unpacked > source.unpacked_bytes:
        raise RequestError(
            ErrorCode.LIMIT_EXCEEDED,
            f"artefact {source.uri!r} unpacks to {len(members)} files with {unpacked} bytes, the "
            f"models' setting 'artefact_bytes' allows {source.unpacked_bytes}",
        )
    return archive


def _archive(source: Content) -> Kind:
    names = open_archive(source).namelist()
    if any(name.endswith("/archive_format") for name in names):
        return "torch-export"
    if any(name.endswith("/constants.pkl") for name in names) and any("/code/" in n for n in names):
        return "torchscript"
    if any(name.endswith("data.pkl") for name in names):
        return "torch pickle"
    return "pickle" if any(name.lower().endswith(_SUFFIXES) for name in names) else "other"


def _is_pickle(head: bytes) -> bool:
    """Say whether the bytes begin as a pickle: the marks of protocols 2 to 5, else as far as they parse."""
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return True
    seen = 0
    try:
        for opcode, _, _ in pickletools.genops(head):
            seen += 1
            if opcode.name == "STOP":
                return True
    except Exception:  # the parser of a hostile file
        # Cut short by the end of what was read, not by an opcode that does not exist.
        return len(head) == _PICKLE_BYTES and seen > 100
    return False
