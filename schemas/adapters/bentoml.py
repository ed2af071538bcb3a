"""BentoML's monitoring log: a flat JSON object a line, with ``timestamp`` and ids of the request."""

from __future__ import annotations

from attributary.schemas.adapters.inference import Facts, Inference, Part, Skipped
from attributary.schemas.adapters.message import ForeignMessage, parse_object
from attributary.schemas.adapters.side import from_rows
from attributary.schemas.errors import Reason, RejectedError

_OWN = ("timestamp", "request_id", "trace_id")


def read_bentoml(message: ForeignMessage, outputs: tuple[str, ...]) -> list[Part]:
    """Return the inference of a line; ``outputs``: columns that were logged as predictions.

    A line of the log's schema is skipped.
    """
    line = parse_object(message.value)
    if isinstance(line.get("columns"), list) and "meta_data" in line:
        return [Skipped("schema_line")]
    missing = [name for name in outputs if name not in line]
    if missing:
        raise RejectedError(Reason.OUTPUTS_MISSING, f"no prediction {missing[0]!r:.60} in the line")
    features = {n: v for n, v in line.items() if n not in _OWN and n not in outputs}
    said = {name: line[name] for name in outputs}
    time = line.get("timestamp")
    # A request of several rows gives all of them its id, so it is no id of a row.
    facts = Facts(time=time if isinstance(time, (str, int, float)) else None)
    return [Inference(from_rows([features], "the line"), from_rows([said], "the line"), facts)]
