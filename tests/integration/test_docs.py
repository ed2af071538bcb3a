"""The documentation, followed as it is written: every command and example is run, or says why it is not."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from doc_blocks import ROOT, Block, blocks, pages
from fastapi import FastAPI
from walkthrough import Step, Walkthrough

from attributary import Publisher

#: In the order of a reader who begins: the first page starts the pipeline that all of them use.
_FOLLOWED = (
    "docs/tutorial.md",
    "README.md",
    "docs/concepts.md",
    "docs/read.md",
    "docs/client.md",
    "docs/ondemand.md",
    "docs/operate.md",
    "docs/messages.md",
    "docs/baseline.md",
    "docs/backfill.md",
)
#: Pages whose examples another test runs.
_ELSEWHERE = {"docs/models.md": "tests/models/test_models_page.py"}
_SEEN = {"age": 41.0, "plan": "pro"}


def runnable(page: str) -> list[Block]:
    """Return the commands and the Python examples of a page that are to be run."""
    return [
        block
        for block in blocks(ROOT / page)
        if block.language in ("console", "python") and block.reason is None
    ]


def test_every_page_with_something_to_run_is_run() -> None:
    found = {name for page in pages() if runnable(name := str(page.relative_to(ROOT)))}
    assert sorted(found) == sorted([*_FOLLOWED, *_ELSEWHERE])
    for test in _ELSEWHERE.values():
        assert (ROOT / test).exists()


def test_every_block_says_what_it_is() -> None:
    for page in pages():
        for block in blocks(page):
            assert block.language in ("", "console", "json", "python", "toml"), block.place


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_docs_do_what_they_say(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") != "embedded":
        pytest.skip("the docs begin with the embedded broker")
    walk = Walkthrough(tmp_path)
    try:
        first, *others = _FOLLOWED
        walk.follow(runnable(first))
        with churn_is_served(walk) as model:
            given = {"features": _SEEN, "margin": 0.7, "model": model, "app": FastAPI()}
            for page in others:
                walk.follow(runnable(page), given)
    finally:
        walk.close()
        for step in walk.steps:
            print(f"{step.seconds:6.1f} s  {step.block.place}\n{step.output}")
    _check_tutorial(walk.steps)
    asked = [s.output for s in walk.steps if "from attributary import Explainer" in s.block.text]
    assert asked[0].startswith("result "), asked
    assert "plan pro -" in asked[1], asked


def _check_tutorial(steps: list[Step]) -> None:
    """What the tutorial says one will see."""
    said = {
        heading: "".join(s.output for s in steps if s.block.heading == heading)
        for heading in {s.block.heading for s in steps if s.block.page.name == "tutorial.md"}
    }
    scores = {
        name: [float(number) for number in numbers]
        for name, *numbers in re.findall(
            r"^\d+ +(\S+) +([\d.]+) +\[([\d.]+), ([\d.]+)\]", said["3. A table of your own"], re.M
        )
    }
    assert scores["age"][0] > 0.8
    assert scores["plan=pro"][0] < 0.2
    assert scores["income"][1] < 0.5 < scores["income"][2]
    assert "dropped 0\n" in said["4. A model of your own"]
    assert "score lifetime [('age', 0.9" in said["4. A model of your own"]
    assert "tariff · row 0 · score = " in said["5. Why this prediction?"]
    assert re.search("all is well|nothing to mend", said["6. Look at it"])
    total = sum(s.seconds for s in steps if s.block.page.name == "tutorial.md")
    assert total < 120


@contextmanager
def churn_is_served(walk: Walkthrough) -> Iterator[Any]:
    """Add what the README's reader has: a model with its card, and a process that publishes its rows."""
    model = _train_churn(walk.folder)
    stop = threading.Event()
    walk.do("attributary register churn.json --artefact churn.ubj --samples 100")
    time.sleep(2)  # its samples begin with the first block after it
    walk.do("attributary publish rows.csv --model churn --outputs score --features age,plan")

    def serve() -> None:
        with Publisher(walk.bootstrap, model="churn") as publisher:
            while not stop.wait(0.2):
                publisher.publish(_SEEN, outputs=0.7)

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield model
    finally:
        stop.set()
        server.join()


def _train_churn(folder: Path) -> Any:
    """Return a model; write churn.json, churn.ubj, also under models/, row.json, and the training tables."""
    import xgboost

    table = pd.read_csv(folder / "rows.csv", nrows=500)
    columns: dict[str, Any] = {"age": table["age"]}
    levels = ["free", "pro"]
    for level in levels:
        columns[f"plan={level}"] = (table["plan"] == level).astype(float)
    model = xgboost.XGBRegressor(n_estimators=10, max_depth=3)
    model.fit(pd.DataFrame(columns), table["score"])
    train = table[["age", "plan"]]
    train.to_csv(folder / "train.csv", index=False)
    train.assign(churned=table["score"] > 2, margin=table["score"]).to_parquet(
        folder / "train.parquet"
    )
    card = {
        "model": "churn",
        "features": [
            {"name": "age"},
            {"name": "plan", "kind": "categorical", "levels": levels},
        ],
        "outputs": ["score"],
    }
    _write_log(folder, table)
    (folder / "models").mkdir()
    for place in (folder, folder / "models"):
        model.save_model(place / "churn.ubj")
    (folder / "churn.json").write_text(json.dumps(card))
    (folder / "row.json").write_text(json.dumps(_SEEN))
    return model


def _write_log(folder: Path, table: pd.DataFrame) -> None:
    """Write the served rows with their times: rows.parquet, log.duckdb, and logs/ beside customers.csv."""
    import duckdb

    now = pd.Timestamp.now("UTC").floor("s").tz_localize(None)
    rows = table[["age", "plan", "score"]].head(100).assign(id=[f"c{n}" for n in range(100)])
    rows["served_at"] = now - pd.to_timedelta(range(100, 0, -1), unit="s")
    rows[["age", "plan", "score", "served_at"]].to_parquet(folder / "rows.parquet")
    rows[["id", "plan"]].to_csv(folder / "customers.csv", index=False)
    (folder / "logs").mkdir()
    rows[["id", "age", "score", "served_at"]].to_parquet(folder / "logs" / "today.parquet")
    with duckdb.connect(folder / "log.duckdb") as log:
        log.register("served", rows.drop(columns="id").assign(day=pd.Timestamp("2026-02-01")))
        log.execute("CREATE TABLE predictions AS FROM served")
