"""whylogs: a profile of the features, through its pandas path and row by row."""

from typing import Any

import pandas as pd
from timing import Peer, batches
from whylogs.core import DatasetProfile, DatasetSchema
from whylogs.core.metrics import StandardMetric
from whylogs.core.resolvers import Resolver

peer = Peer("whylogs")
frame = pd.DataFrame(peer.X, columns=[f"x{j}" for j in range(peer.X.shape[1])])


class DistributionOnly(Resolver):
    """Counts and the quantile sketch alone: no cardinality, no frequent items."""

    def resolve(self, name: str, why_type: object, column_schema: Any) -> dict[str, Any]:
        kept = (StandardMetric.counts, StandardMetric.distribution)
        return {metric.name: metric.value.zero(column_schema.cfg) for metric in kept}


def profile(parts: list[pd.DataFrame], schema: DatasetSchema | None) -> DatasetProfile:
    state = DatasetProfile(schema=schema)
    for part in parts:
        state.track(part)
    return state


def row_by_row(records: list[dict[str, float]]) -> None:
    state = DatasetProfile()
    for record in records:
        state.track(record)


rows, few = peer.rows(8192), peer.rows(256)
lean = DatasetSchema(resolvers=DistributionOnly())
parts, whole = [frame.iloc[at] for at in batches(rows)], [frame.iloc[:rows]]
records = frame.iloc[:few].to_dict("records")
size = len(profile(parts, None).view().serialize())
lean_size = len(profile(parts, lean).view().serialize())
peer.time(
    "profile of the features, pandas, batches of 1,024",
    lambda: profile(parts, None),
    rows,
    "pane",
    size,
)
peer.time("the same, one data frame", lambda: profile(whole, None), rows, "pane", size)
peer.time("the same, row by row", lambda: row_by_row(records), few, "pane", size)
peer.time(
    "counts and distribution alone, batches of 1,024",
    lambda: profile(parts, lean),
    rows,
    "digest",
    lean_size,
)
peer.report()
