"""A model's file as its card names it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from attributary.schemas.card import Artefact
from attributary.schemas.errors import ConfigurationError


def artefact_of(place: str, declared: Artefact | None = None) -> Artefact:
    """Return the artefact at ``place``, a file or a model server's URL, else as ``declared``.

    ConfigurationError: the file cannot be read, or the URL is none.
    """
    kept = {} if declared is None else declared.model_dump(exclude={"uri", "sha256"})
    try:
        if place.startswith(("http://", "https://")):
            return Artefact(uri=place, **kept)
        path = Path(place).resolve()
        return Artefact(uri=str(path), sha256=_sha256(path), **kept)
    except OSError as error:
        raise ConfigurationError(f"--artefact {place}: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigurationError(
            f"--artefact {place}: {error.errors(include_url=False)[0]['msg']}"
        ) from None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()
