"""Writes the samples of a release: run it once, when the release is made.

``PYTHONPATH=tests/support python tests/contracts/make_samples.py``. It refuses to write over what is there:
the samples of a release never change, because they are what its programs wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from contract_samples import CARD, NOW, SAMPLES, Sample, rows, run

from attributary.schemas.dead_letter import Origin
from attributary.schemas.explanation import (
    KIND_HEADER,
    ORIGIN_HEADER,
    ErrorCode,
    Explanation,
    Failure,
    McirResult,
    Progress,
    Result,
)
from attributary.schemas.request import (
    DEADLINE_HEADER,
    Cancellation,
    ExplanationRequest,
    Instance,
    MethodName,
    StreamWindow,
)
from attributary.schemas.retry_marker import MARKER_HEADER, RetryMarker
from attributary.schemas.unique_information import UNIQUE_INFORMATION, UniqueInformationRun
from attributary.workers.explainers.batched import Floats
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.methods import find_method
from attributary.workers.ondemand.methods.method import Context

_PEOPLE: list[dict[str, Any]] = [
    {"age": 30.0 + 7 * k, "income": 9_000.0 + 4_000 * (k * 3 % 7), "debt": 500.0 * (k * 5 % 8),
     "plan": ("free", "pro")[k % 2]}
    for k in range(24)
]  # fmt: skip
_DEADLINE = (DEADLINE_HEADER, str(NOW + 30_000).encode())


def _model(X: Floats) -> Floats:
    """Of age, income, debt and the plan: its columns free, pro and (other), or its position."""
    pro = X[:, 4] if X.shape[1] > 4 else X[:, 3]
    found: Floats = X[:, 0] / 10 - pro + X[:, 1] * X[:, 2] / 1e7
    return found


def _result(method: MethodName, parameters: dict[str, Any]) -> Result:
    how = find_method(method)
    inputs = Inputs(CARD)
    people = [Instance(features=person) for person in _PEOPLE]
    asked = people if method == "mcir-m" else people[:1]
    rows = inputs.encode(asked, "instance")
    X = inputs.to_space(rows, how.space)
    context = Context(
        features=inputs.features, positions=inputs.columns_of(how.space), outputs=("score",),
        ids=(None,) * len(asked), values=inputs.values(rows),
        bounds=inputs.bounds() if how.space == "columns" else None,
        rng=np.random.default_rng(0), batch_size=100, precision="float64", piecewise_constant=False,
    )  # fmt: skip
    background = inputs.to_space(inputs.encode(people, "background row"), how.space)
    found: Result = how.run(
        _model, X, None if method == "mcir-m" else background, how.parameters(**parameters), context
    )
    return found


def _explanations() -> list[Sample]:
    final = [(KIND_HEADER, b"final"), (ORIGIN_HEADER, b"attributary.requests/0/3")]
    common: dict[str, Any] = {
        "model": "churn", "requested_at": NOW, "computed_at": NOW + 900, "seconds": 0.75, "seed": 5,
    }  # fmt: skip
    methods: list[tuple[MethodName, dict[str, Any]]] = [
        ("t-explainer", {}),
        ("ordshap", {"estimator": "exact", "fixed": ["plan"]}),
        ("mcir-m", {"bootstraps": 4}),
    ]
    answers = [
        Explanation(
            id=f"r-{method}", method=method, outcome="result", result=_result(method, parameters),
            background_rows=24, model_calls=3, model_rows=90, artefact_sha256="0" * 64, **common,
        )
        for method, parameters in methods
    ]  # fmt: skip
    failure = Failure(code=ErrorCode.MODEL_FAILED, message="the model raised ValueError")
    answers += [
        Explanation(id="r-error", method="ordshap", outcome="error", error=failure, **common),
        Explanation(id="r-expired", outcome="expired", **common),
        Explanation(id="r-cancelled", outcome="cancelled", **common),
    ]
    progress = Progress(id="r-ordshap", state="running", attempt=1, done=3, total=9, at=NOW)
    return [
        Sample("p|r-ordshap", progress.to_bytes(), [(KIND_HEADER, b"progress"), *final[1:]]),
        *(Sample(answer.id, answer.to_bytes(), final) for answer in answers),
    ]


def samples() -> dict[str, Sequence[Sample]]:
    """Return the records of every topic by its name without the prefix."""
    card = Sample("churn", CARD.to_bytes())
    messages = rows()
    done = run(card, messages)
    claim = RetryMarker.claim(Origin("attributary.rows", 0, 4), 1, frozenset({0, 1, 3}), "x", NOW)
    requests = [
        ExplanationRequest(
            id="r-1", model="churn", instances=[Instance(id="p0", features=_PEOPLE[0])],
            background=StreamWindow(seconds=600, rows=50), output="score", seed=5,
        ),
        ExplanationRequest(
            id="r-2", model="churn", method="mcir-m", instances=StreamWindow(start=0, end=NOW),
            output=0, parameters={"bootstraps": 4},
        ),
    ]  # fmt: skip
    result = _result("mcir-m", {"bootstraps": 4})
    assert isinstance(result, McirResult)
    unique = UniqueInformationRun(
        id="scheduled|1700000040000|churn", model="churn", tick=1_700_000_040_000, every_seconds=600.0,
        computed_at=NOW + 41_000, seconds=0.25, result=result,
    )  # fmt: skip
    by_kind = {
        kind: [
            Sample("churn", r.to_bytes()) for r in done.results if r.SCHEMA.split("/")[0] == kind
        ]
        for kind in ("attributary.attribution", "attributary.drift")
    }
    return {
        "rows": messages,
        "models": [card],
        "grids": done.grids,
        "sketches": done.sketches,
        "attributions": [
            *by_kind["attributary.attribution"],
            Sample("churn", unique.to_bytes(), [(KIND_HEADER, UNIQUE_INFORMATION)]),
        ],
        "drift": by_kind["attributary.drift"],
        "dead-letters": [
            *done.letters,
            Sample(claim.key.decode(), claim.to_bytes(), [(MARKER_HEADER, b"claimed")]),
        ],
        "requests": [Sample(one.id, one.to_bytes(), [_DEADLINE]) for one in requests],
        "cancellations": [Sample("r-1", Cancellation(id="r-1").to_bytes())],
        "explanations": _explanations(),
    }


def main() -> int:
    """Write the samples of the installed version."""
    folder = SAMPLES / version("attributary")
    if folder.exists():
        print(f"{folder} is there: the samples of a release never change", file=sys.stderr)
        return 1
    found = samples()
    folder.mkdir(parents=True)
    for topic, records in found.items():
        text = "".join(record.line() + "\n" for record in records)
        (folder / f"{topic}.jsonl").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
