"""A model's file as its card names it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from attributary.schemas.card import Artefact, ModelFormat
from attributary.schemas.errors import ConfigurationError
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.formats import EXECUTABLE, format_of
from attributary.workers.ondemand.loaders.loaded import Content
from attributary.workers.ondemand.loaders.sniff import refuse_code


def artefact_of(place: str, declared: Artefact | None = None) -> Artefact:
    """Return the artefact at ``place``, a file or a model server's URL, else as ``declared``.

    ConfigurationError: the file cannot be read, no worker would open one of its kind (a pickle), or the
    URL is none.
    """
    kept = {} if declared is None else declared.model_dump(exclude={"uri", "sha256"})
    try:
        if place.startswith(("http://", "https://")):
            return Artefact(uri=place, **kept)
        path = Path(place).resolve()
        found = Artefact(uri=str(path), sha256=_sha256(path), **kept)
        _check_kind(path, found)
        return found
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

    ConfigurationError: as ``artefact_of``, also of what the card names, or there is nothing that takes
    categories.
    """
    found = declared if place is None else artefact_of(place, declared)
    if found is not None:
        _format_of(found)
    if categories is None:
        return found
    if found is None:
        raise ConfigurationError("--categories says how a model takes them: name it, --artefact")
    return found.model_copy(update={"categories": categories})


def loading_hints(artefact: Artefact, roots: Sequence[Path]) -> list[str]:
    """Return what request workers must allow before they load a file. ``roots``: what the settings allow."""
    kind = _format_of(artefact)
    if kind == "server":
        return []
    hints = []
    if kind in EXECUTABLE:
        hints.append(
            f"this format can run code: workers load it where {artefact.sha256} is among the setting "
            "models.executable_sha256"
        )
    path = Path(artefact.uri)
    if path.is_absolute() and not any(path.is_relative_to(root.resolve()) for root in roots):
        outside = "" if not roots else f"; it lies outside {', '.join(map(str, roots))}"
        hints.append(
            "workers load it where its folder is allowed: attributary ondemand --model-root "
            f"{path.parent}{outside}"
        )
    return hints


def _check_kind(path: Path, artefact: Artefact) -> None:
    """Raise what a worker would say of the file's kind: by its name, then by its bytes."""
    kind = _format_of(artefact)
    try:
        with path.open("rb") as file:
            refuse_code(Content(file.fileno(), artefact.uri, kind, sys.maxsize))
    except RequestError as error:
        raise ConfigurationError(str(error)) from None


def _format_of(artefact: Artefact) -> ModelFormat:
    try:
        return format_of(artefact)
    except RequestError as error:
        raise ConfigurationError(str(error)) from None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()
