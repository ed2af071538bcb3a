"""Cards and policies for model files under test, and what an answer's error must be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.formats import format_of, load
from attributary.workers.ondemand.loaders.loaded import LoadedModel, Source
from attributary.workers.ondemand.models import OpenModel, open_model
from attributary.workers.ondemand.policy import LoadPolicy


def card_of(path: Path, features: tuple[str, ...] = (), **artefact: Any) -> ModelCard:
    """Return the card of the file, with the hash that it has now."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return ModelCard(
        model="m",
        features=[{"name": name} for name in features],
        artefact=Artefact(**{"uri": str(path), "sha256": digest, **artefact}),
    )


def open_file(path: Path, policy: dict[str, Any] | None = None, **artefact: Any) -> OpenModel:
    """Open the file under a policy that allows its folder."""
    return open_model(card_of(path, **artefact), LoadPolicy(roots=(path.parent,), **(policy or {})))


def load_here(
    path: Path,
    device: str = "cpu",
    mixed_precision: Literal["off", "bfloat16", "float16"] = "off",
    **artefact: Any,
) -> LoadedModel:
    """Load the file in this process: where only the loader's judgement is in question, and it is safe."""
    card = card_of(path, **artefact)
    assert card.artefact is not None
    policy = LoadPolicy()
    with path.open("rb") as file:
        return load(
            Source(
                descriptor=file.fileno(),
                uri=str(path),
                format=format_of(card.artefact),
                head=card.artefact.head,
                link=card.artefact.link,
                piecewise_constant=card.artefact.piecewise_constant,
                names=None,
                device=device,
                threads=1,
                mixed_precision=mixed_precision,
                skops_trusted=[],
                unpacked_bytes=policy.artefact_bytes,
                response_bytes=policy.response_bytes,
                call_seconds=policy.call_seconds,
                load_seconds=policy.load_seconds,
            )
        )


@contextmanager
def raises(code: ErrorCode, *said: str) -> Iterator[pytest.ExceptionInfo[RequestError]]:
    """Expect a RequestError with this code, whose message holds every text of ``said``."""
    with pytest.raises(RequestError) as caught:
        yield caught
    assert caught.value.code is code, caught.value
    for text in said:
        assert text in str(caught.value), caught.value
