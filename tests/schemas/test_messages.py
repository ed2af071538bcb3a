"""The JSON messages: one codec for all, the checks of a card, and what a key holds."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attributary.schemas.attribution import (
    Accounting,
    FeatureScore,
    Window,
    WindowAttribution,
    WindowDrift,
)
from attributary.schemas.card import Feature, Hopping, Lifetime, ModelCard, Tumbling
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.explanation import (
    Contribution,
    Explanation,
    LocalContributions,
    McirResult,
    Progress,
    TExplainerResult,
)
from attributary.schemas.grid import Column, GridRecord
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.schemas.message import Message
from attributary.schemas.request import Cancellation, ExplanationRequest, Instance, StreamWindow
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UniqueInformationRun

KINDS: list[type[Message]] = [
    ModelCard, GridRecord, Manifest, WindowAttribution, WindowDrift,
    ExplanationRequest, Cancellation, Progress, Explanation, UniqueInformationRun,
]  # fmt: skip

CARD = ModelCard(
    model="churn",
    features=[
        Feature(name="age", low=18.0),
        Feature(name="plan", kind="categorical", levels=["a"]),
    ],
    outputs=["margin"],
    windows=[Tumbling(seconds=60), Hopping(seconds=60, hop_seconds=20), Lifetime()],
)
MANIFEST = Manifest(
    topic="rows",
    partition=1,
    block=8192,
    upto=9000,
    previous=0,
    sealed=False,
    partitions=4,
    end_offset=9100,
    models={"churn": ModelCount(accepted={0: 5, 10_000: 7}, rejected={"empty": 2}, event_time=12)},
)
GRID = GridRecord(
    model="churn",
    epoch=0,
    layout=0,
    rows=1024,
    pane_ms=10_000,
    columns=[Column(feature="age"), Column(feature="plan", level="a", categorical=True)],
    outputs=["margin"],
    x_edges=[[1.0], [0.5]],
    y_edges=[[0.0]],
    x_reference=[40.0, 0.0],
    y_reference=[0.1],
)
ATTRIBUTION = WindowAttribution(
    model="churn",
    output="margin",
    window=Window(kind="tumbling", start=0, end=60_000, seconds=60.0),
    revision=100,
    final=True,
    watermark=61_000,
    computed_at=62_000,
    epochs=[0],
    output_quartiles=(-1.0, 0.0, 1.0),
    features=[
        FeatureScore(
            name="age",
            score=0.9,
            stderr=math.nan,
            interval=(0.8, 0.95),
            effective_rows=80.0,
            direction=1,
            strength_low=0.6,
            rank=1,
        )
    ],
    groups=[],
    accounting=Accounting(
        rows=100,
        rows_accepted=100,
        rows_rejected={"empty": 1},
        rows_late=0,
        offsets={"rows[0]": (0, 101)},
        duplicates=0,
        gaps=0,
    ),
)

REQUEST = ExplanationRequest(
    id="r-1",
    model="churn",
    output="margin",
    instances=[Instance(features={"age": 41, "plan": "a", "income": None, "active": True})],
    background=StreamWindow(seconds=600, rows=50),
    parameters={"batch": 5},
    seed=7,
)
PROGRESS = Progress(id="r-1", state="running", attempt=1, done=2, total=5, at=62_000)
EXPLANATION = Explanation(
    id="r-1",
    model="churn",
    method="t-explainer",
    outcome="result",
    result=TExplainerResult(
        explanations=[
            LocalContributions(
                instance=0,
                output="margin",
                prediction=1.5,
                base_value=0.5,
                additivity_gap=0.25,
                features=[
                    Contribution(feature="age", value=41.0, contribution=0.75, gradient=0.1),
                    Contribution(feature="plan", value="a", contribution=math.nan),
                ],
            )
        ]
    ),
    requested_at=62_000,
    computed_at=63_000,
    seconds=1.0,
)
RUN = UniqueInformationRun(
    id="scheduled|60000|churn",
    model="churn",
    tick=60_000,
    every_seconds=60.0,
    computed_at=61_000,
    seconds=0.5,
    result=McirResult(
        outputs=["margin"],
        observed=True,
        window=StreamWindow(start=0, end=60_000, rows=500),
        rows=500,
        rows_left_out=0,
        size=1,
        sizes=[],
        stability=None,
        features=[],
    ),
)
MESSAGES = [CARD, MANIFEST, GRID, ATTRIBUTION, REQUEST, PROGRESS, EXPLANATION, RUN]


def _reason(kind: type[Message], data: bytes | None) -> Reason:
    with pytest.raises(RejectedError) as caught:
        kind.from_bytes(data)
    assert str(caught.value).startswith(kind.SCHEMA), "the message names what was expected"
    return caught.value.reason


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.SCHEMA)
def test_a_message_names_its_schema_and_comes_back(message: Message) -> None:
    data = message.to_bytes()
    assert json.loads(data)["schema"] == message.SCHEMA
    again = type(message).from_bytes(data)
    assert again.to_bytes() == data


def test_nan_becomes_null_so_that_every_json_reader_can_read_it() -> None:
    data = ATTRIBUTION.to_bytes()
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} in the message"))
    assert WindowAttribution.from_bytes(data).features[0].stderr is None


def test_fields_of_a_newer_writer_are_ignored() -> None:
    data = json.loads(MANIFEST.to_bytes())
    data["new"] = {"deep": [1, 2]}
    data["models"]["churn"]["newer"] = 5
    assert Manifest.from_bytes(json.dumps(data).encode()) == MANIFEST


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", ["attributary.other/1", "attributary.model/9", 5, ["a"], "x\x1b"])
def test_another_schema_is_refused_by_name(kind: type[Message], named: Any) -> None:
    with pytest.raises(RejectedError, match="expected the schema") as caught:
        kind.from_bytes(json.dumps({"schema": named}).encode())
    assert caught.value.reason == Reason.WRONG_TYPE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "data",
    [None, b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"model":' * 50_000, b'{"a":"\\ud800"}'],
)
def test_what_is_no_json_is_not_decodable(kind: type[Message], data: bytes | None) -> None:
    assert _reason(kind, data) == Reason.NOT_DECODABLE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"null", b"5", b"[]", b'"text"', b"{}", b'{"model":5}'])
def test_other_json_is_of_the_wrong_type(kind: type[Message], data: bytes) -> None:
    assert _reason(kind, data) == Reason.WRONG_TYPE


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_any_bytes_are_refused(kind: type[Message], data: bytes) -> None:
    assert _reason(kind, data) in (Reason.NOT_DECODABLE, Reason.WRONG_TYPE)


@given(st.data())
def test_a_truncated_message_is_not_decodable(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(MESSAGES))
    encoded = message.to_bytes()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert _reason(type(message), encoded[:cut]) == Reason.NOT_DECODABLE


def _card(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def test_a_card_needs_only_a_name() -> None:
    card = ModelCard.from_bytes(b'{"model":"m"}')
    assert (card.features, card.outputs, card.strict) == ([], [], False)
    assert [window.kind for window in card.windows] == ["tumbling", "lifetime"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"features": [{"name": "a"}, {"name": "a"}]}, "features named twice: a"),
        ({"outputs": ["y", "y"]}, "outputs named twice: y"),
        ({"features": [{"name": "a", "levels": ["x"]}]}, "give it kind 'categorical'"),
        ({"features": [{"name": "a", "kind": "categorical", "levels": ["x", "x"]}]}, "level twice"),
        ({"features": [{"name": "a", "low": 2, "high": 1}]}, "low 2.0 above high 1.0"),
        ({"features": [{"name": "a", "low": 1e400}]}, "finite"),
        ({"features": [{"name": ""}]}, "at least 1 character"),
        ({"features": [{"name": "a", "colour": "red"}]}, "colour"),
        ({"windows": []}, "at least 1"),
        ({"windows": [{"kind": "sliding"}]}, "sliding"),
        ({"windows": [{"kind": "tumbling", "seconds": 15}]}, "not a multiple of pane_seconds=10"),
        ({"windows": [{"kind": "hopping", "seconds": 60, "hop_seconds": 15}]}, "hop_seconds=15"),
        ({"windows": [{"kind": "hopping", "seconds": 60, "hop_seconds": 40}]}, "hop_seconds=40"),
        ({"windows": [{"kind": "tumbling", "seconds": 0}]}, "seconds"),
        ({"windows": [{"kind": "tumbling", "seconds": 1e400}]}, "seconds"),
        ({"pane_seconds": 0}, "pane_seconds"),
        ({"pane_seconds": 1e-9}, "pane_seconds"),
        ({"pane_seconds": math.nan}, "pane_seconds"),
        ({"allowed_lateness_seconds": -1}, "allowed_lateness_seconds"),
        ({"allowed_lateness_seconds": math.inf}, "allowed_lateness_seconds"),
        ({"samples": -1}, "samples"),
        ({"artefact": {"uri": "file:m", "sha256": "abc"}}, "sha256"),
        ({"model": "with space"}, "model"),
        ({"model": ""}, "model"),
        ({"model": "m\n"}, "model"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_card_that_cannot_work_says_why(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RejectedError) as caught:
        ModelCard.from_bytes(_card(**fields))
    assert caught.value.reason == Reason.WRONG_TYPE
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"instances": []}, "instances"),
        ({"instances": [{"features": {}}]}, "instances"),
        ({"instances": [{"features": {"a": [1]}}]}, "instances"),
        ({"instances": {"rows": 0}}, "instances"),
        ({"instances": {"start": 5, "end": 5}}, "instances"),
        ({"instances": {"start": 5, "seconds": 5}}, "instances"),
        ({"background": []}, "background"),
        ({"method": "magic"}, "method"),
        ({"id": "with space"}, "id"),
        ({"id": ""}, "id"),
        ({"model": "m\n"}, "model"),
        ({"output": -1}, "output"),
        ({"seed": -1}, "seed"),
        ({"parameters": [1]}, "parameters"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_request_that_cannot_work_says_where(fields: dict[str, Any], said: str) -> None:
    data = {"id": "r", "model": "m", "instances": [{"features": {"a": 1}}], **fields}
    with pytest.raises(RejectedError) as caught:
        ExplanationRequest.from_bytes(json.dumps(data).encode())
    assert caught.value.reason == Reason.WRONG_TYPE
    assert f"{ExplanationRequest.SCHEMA}: {said}" in str(caught.value)


def test_values_of_an_instance_keep_their_kind() -> None:
    data = b'{"id":"r","model":"m","instances":[{"features":{"a":1,"b":true,"c":"1","d":null}}]}'
    found = ExplanationRequest.from_bytes(data).instances
    assert isinstance(found, list)
    assert [type(value) for value in found[0].features.values()] == [float, bool, str, type(None)]


def test_a_manifest_sums_its_rows_and_keys_its_block() -> None:
    count = Manifest.from_bytes(MANIFEST.to_bytes()).models["churn"]
    assert (count.rows_accepted, count.rows_rejected) == (12, 2)
    assert MANIFEST.key == b"m|rows|1|8192"
    heartbeat = MANIFEST.model_copy(update={"upto": MANIFEST.block})
    assert heartbeat.key == b"m|rows|1|8192|heartbeat"  # compaction would drop the block's own


def test_a_manifest_of_thinned_rows_has_a_key_of_its_own_and_counts_them() -> None:
    light = ModelCount(accepted={0: 8}, fraction=0.5, thinned=3)
    models = {"all": ModelCount(accepted={0: 1}), "some": light}
    manifest = Manifest.from_bytes(MANIFEST.model_copy(update={"models": models}).to_bytes())
    assert manifest.models["some"].rows_accepted == 8
    assert (manifest.models["all"].fraction, manifest.models["some"].thinned) == (1.0, 3)
    assert manifest.key == b"m|rows|1|8192|0.5"
    assert manifest.model_copy(update={"sealed": True}).key == b"m|rows|1|8192|sealed|0.5"


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (Column(feature="age"), "age"),
        (Column(feature="plan", level="pro", categorical=True), "plan=pro"),
        (Column(feature="plan", level="", categorical=True), "plan="),
        (Column(feature="plan", categorical=True), "plan=(other)"),
    ],
)
def test_a_columns_name_is_its_feature_and_level(column: Column, name: str) -> None:
    assert column.name == name


def test_a_prefix_renames_every_topic() -> None:
    names = Topics.with_prefix("team-a.").model_dump()
    assert names["dead_letters"] == "team-a.dead-letters"
    assert all(name.startswith("team-a.") for name in names.values())
    assert Topics.with_prefix("attributary.") == Topics()
