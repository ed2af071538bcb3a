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


def declared_artefact(
    place: str | None, categories: str | None, declared: Artefact | None
) -> Artefact | None:
    """Return what ``--artefact`` and ``--categories`` make of a card's artefact; None: it has none.

    ConfigurationError: as ``artefact_of``, or there is nothing that takes categories.
    """
    found = declared if place is None else artefact_of(place, declared)
    if categories is None:
        return found
    if found is None:
        raise ConfigurationError("--categories says how a model takes them: name it, --artefact")
    return found.model_copy(update={"categories": categories})


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()
