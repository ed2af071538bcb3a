"""What a request may say, and what of its headers its answers carry."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from attributary.schemas.context import context_headers
from attributary.schemas.errors import RejectedError
from attributary.schemas.request import Cancellation, ExplanationRequest, StreamWindow

HUNDRED_YEARS = 100 * 365.25 * 86_400


@pytest.mark.parametrize("request_id", ["p", "p:x", "P|x", "r|p|x", "|p", "~" * 200])
def test_ids(request_id: str) -> None:
    assert Cancellation(id=request_id).id == request_id


@pytest.mark.parametrize("request_id", ["", "a b", "a\n", "é", "~" * 201])
def test_ids_that_are_none(request_id: str) -> None:
    with pytest.raises(ValidationError):
        Cancellation(id=request_id)


@pytest.mark.parametrize("request_id", ["p|", "p|x"])
def test_the_keys_of_progress_are_no_ids(request_id: str) -> None:
    with pytest.raises(ValidationError, match="kept for progress: choose another"):
        Cancellation(id=request_id)


@pytest.mark.parametrize("seconds", [1e-3, 1, HUNDRED_YEARS])
def test_lengths_of_windows(seconds: float) -> None:
    assert StreamWindow(seconds=seconds).seconds == seconds


@pytest.mark.parametrize("seconds", ["0", "-1", "1e308", "1e999", "NaN", "Infinity", "3155760001"])
def test_lengths_that_are_none(seconds: str) -> None:
    value = b'{"id":"r","model":"m","instances":{"seconds":%s}}' % seconds.encode()
    with pytest.raises(RejectedError, match="request/1: "):
        ExplanationRequest.from_bytes(value)


def test_trace_baggage_and_cloud_events_are_carried() -> None:
    headers: list[tuple[str, Any]] = [
        ("content-type", b"application/json"),
        ("Traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", b"a=1"),
        ("tracestate", b"b=2"),
        ("baggage", b"user=1"),
        ("attributary-deadline", b"1"),
        ("ce_id", b"1"),
        ("ce_empty", None),
        ("trace", b"no"),
        ("ce", b"no"),
    ]
    assert context_headers(headers) == [headers[i] for i in (1, 2, 3, 4, 6, 7)]


def test_what_is_carried_is_bounded() -> None:
    long = [("baggage", b"x" * 8192), ("ce_a", b"y" * 8192), ("ce_b", b"z")]
    assert context_headers(long) == long[:1]
