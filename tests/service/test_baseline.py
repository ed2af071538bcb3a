"""``attributary baseline``: the card of a training table against numpy, and drift against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from merge_stream import START, Stream, feed
from models import card_of
from pydantic import ValidationError

from attributary.schemas.attribution import WindowDrift
from attributary.schemas.card import Baseline, Digest, Feature, ModelCard, Tumbling
from attributary.schemas.errors import AttributaryError, ConfigurationError
from attributary.service import baseline as module
from attributary.service.baseline import BaselineJob, MadeBaseline, make_baseline
from attributary.service.cli import cli
from attributary.service.columns import Choice
from attributary.service.table_files import ParquetFile
from attributary.workers.maths.cir import cir
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.ondemand.policy import LoadPolicy
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.training import TrainingSamples, baseline_of, sample_of

ROWS = 3000
LEVELS = ["free", "pro", "team"]
NAMES = ["age", "tenure", "income", "noise", "plan"]


def table(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.lognormal(size=rows)
    tenure = age + 0.1 * rng.standard_normal(rows)
    income = np.where(rng.random(rows) < 0.1, np.nan, -age + 0.2 * rng.standard_normal(rows))
    noise = rng.standard_normal(rows)
    plan = rng.choice(LEVELS, rows, p=[0.6, 0.3, 0.1]).astype(object)
    plan[::50] = None
    margin = age - 0.5 * noise + (plan == "pro")
    weight = rng.uniform(0.5, 2.0, rows)
    return pd.DataFrame(
        {"age": age, "tenure": tenure, "income": income, "noise": noise, "plan": plan,
         "margin": margin, "opposite": -margin, "label": margin > 1, "weight": weight}
    )  # fmt: skip


CHOICE = Choice(outputs=("margin", "opposite"), left_out=("label", "weight"))


def written(frame: pd.DataFrame, folder: Path, kind: str) -> Path:
    path = folder / f"train.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False, float_format="%.17g")
    elif kind == "parquet":
        frame.to_parquet(path, row_group_size=700)
    else:
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    return path


def made(path: Path | None, choice: Choice = CHOICE, **job: Any) -> MadeBaseline:
    policy = job.pop("policy", LoadPolicy())
    problems: list[str] = job.pop("problems", [])
    fields = {"model": "m", "choice": choice, **job}
    return make_baseline(
        BaselineJob(path, **fields), IngestOptions(), policy, reject=problems.append
    )


def columns_of(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    plan = frame["plan"].to_numpy()
    one_hot = np.column_stack([plan == level for level in [*LEVELS, "(other)"]]).astype(float)
    one_hot[pd.isna(plan)] = np.nan
    X = np.column_stack([frame[["age", "tenure", "income", "noise"]].to_numpy(float), one_hot])
    return X, frame[["margin", "opposite"]].to_numpy(float)


def test_the_card_holds_what_numpy_finds_in_the_table(tmp_path: Path) -> None:
    frame = table()
    found = made(written(frame, tmp_path, "parquet"))
    card, baseline = found.card, found.card.baseline
    assert baseline is not None
    assert baseline.reference is not None
    X, Y = columns_of(frame)
    assert [feature.name for feature in card.features] == NAMES
    assert card.features[4].levels == LEVELS
    assert (card.outputs, baseline.rows) == (["margin", "opposite"], ROWS)
    ranks = np.arange(1, 16) / 16
    for column in range(4):
        known = X[~np.isnan(X[:, column]), column]
        np.testing.assert_allclose(baseline.x_edges[column], np.quantile(known, ranks), rtol=1e-12)
        assert (card.features[column].low, card.features[column].high) == (known.min(), known.max())
    digests = baseline.reference.x_digests
    assert [d.missing for d in digests] == np.isnan(X).sum(axis=0).tolist()
    assert [d.values + d.missing for d in digests] == [ROWS] * 8
    sample = sample_of(baseline)
    assert sample is not None
    for column in range(4):
        known = np.sort(X[~np.isnan(X[:, column]), column])
        levels = np.array([0.01, 0.1, 0.5, 0.9, 0.99])
        quantile = sample.x_digests.quantile(levels)[:, column]
        np.testing.assert_allclose(
            np.searchsorted(known, quantile) / known.size, levels, atol=0.004
        )
    groups = {"age + tenure + income": [0, 1, 2], "plan": [4, 5, 6, 7]}
    batch = cir(X, Y, groups=groups)
    np.testing.assert_allclose(baseline.reference.scores, batch.score, atol=2e-3)
    np.testing.assert_allclose(
        np.array(baseline.reference.stderr, float), batch.stderr, rtol=0.02, atol=1e-4
    )
    assert set(baseline.reference.groups) == set(groups)
    for name, scores in baseline.reference.groups.items():
        np.testing.assert_allclose(scores, batch.blocks[name], atol=3e-3)
    assert found.groups == {"age + tenure + income": ["age", "tenure", "income"]}
    assert ModelCard.from_bytes(card.to_bytes()) == card


def test_csv_jsonl_queries_and_rows_as_they_travel_make_the_card_of_parquet(tmp_path: Path) -> None:
    frame = table(1500)
    expected = made(written(frame, tmp_path, "parquet")).card
    assert made(written(frame, tmp_path, "csv")).card == expected
    pytest.importorskip("duckdb")
    query = "FROM '" + str(tmp_path / "train.parquet") + "'"
    assert made(None, query=query).card == expected
    flat = made(written(frame, tmp_path, "jsonl")).card
    lines = [
        json.dumps({
            "features": {name: row[name] for name in NAMES},
            "outputs": {name: row[name] for name in ("margin", "opposite")},
        })
        for row in map(json.loads, (tmp_path / "train.jsonl").read_text().splitlines())
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    assert made(tmp_path / "rows.jsonl", Choice()).card == flat
    for ours, theirs in zip(flat.features, expected.features, strict=True):
        assert (ours.name, ours.kind, ours.group) == (theirs.name, theirs.kind, theirs.group)
        if ours.kind == "numeric":
            assert ours.low == pytest.approx(theirs.low, rel=1e-12)


def test_rows_beyond_the_sample_count_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAMPLE_ROWS", 400)
    frame = table(6000, seed=2)
    baseline = made(written(frame, tmp_path, "parquet")).card.baseline
    assert baseline is not None
    assert baseline.reference is not None
    X, Y = columns_of(frame)
    np.testing.assert_allclose(baseline.reference.scores, cir(X, Y).score, atol=5e-3)
    assert baseline.rows == 6000
    # Edges are a sample's: near the table's in rank, and not equal to them.
    age = np.sort(X[:, 0])
    ranks = np.searchsorted(age, baseline.x_edges[0]) / age.size
    np.testing.assert_allclose(ranks, np.arange(1, 16) / 16, atol=0.08)
    assert np.abs(ranks - np.arange(1, 16) / 16).max() > 1e-3


def test_weights_count(tmp_path: Path) -> None:
    frame = table(2000)
    choice = Choice(outputs=("margin",), left_out=("label", "opposite"), weight="weight")
    frame.loc[3, "weight"] = 0.0
    frame.loc[5, "weight"] = np.nan
    problems: list[str] = []
    baseline = made(written(frame, tmp_path, "parquet"), choice, problems=problems).card.baseline
    assert baseline is not None
    assert baseline.reference is not None
    assert problems == [f"row {n}: weight must be above 0 and finite" for n in (4, 6)]
    kept = frame.drop(index=[3, 5])
    X, Y = columns_of(kept)
    batch = cir(X, Y[:, :1], weights=kept["weight"].to_numpy())
    np.testing.assert_allclose(baseline.reference.scores, batch.score, atol=2e-3)
    assert baseline.reference.x_digests[0].values == baseline.rows == 1998


def test_a_card_declares_and_the_baseline_is_added(tmp_path: Path) -> None:
    card = ModelCard(
        model="churn",
        features=[
            Feature(name="plan", kind="categorical", levels=["pro", "free"]),
            Feature(name="noise", group="mine", low=-9.0, high=9.0),
            Feature(name="age", group="mine"),
            Feature(name="tenure"),
            Feature(name="income"),
        ],
        outputs=["opposite", "margin"],
        windows=[Tumbling(seconds=600)],
    )
    path = written(table(1500), tmp_path, "csv")
    found = made(path, Choice(outputs=("margin", "opposite")), card=card, model="churn").card
    assert found.windows == card.windows
    assert found.outputs == card.outputs
    assert [f.name for f in found.features] == [f.name for f in card.features]
    assert found.features[0] == card.features[0]
    assert (found.features[1].low, found.features[1].high) == (-9.0, 9.0)
    assert [f.group for f in found.features[1:]] == ["mine", "mine", *["tenure + income"] * 2]
    assert found.baseline is not None
    assert found.baseline.reference is not None
    scores = dict(zip(found.outputs, found.baseline.reference.scores, strict=True))
    np.testing.assert_allclose(scores["margin"], 1 - np.array(scores["opposite"]), atol=1e-9)
    assert scores["margin"][4] > 0.9  # age, after pro, free, (other) and noise
    with pytest.raises(ConfigurationError, match="leave --features out"):
        made(path, Choice(outputs=("margin",), features=("age",)), card=card)
    with pytest.raises(ConfigurationError, match="the card's are"):
        made(path, Choice(outputs=("margin", "label")), card=card)


def test_the_stream_takes_the_grid_and_finds_drift_only_where_rows_have_moved(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.standard_normal((2000, 2)), columns=["a", "b"])
    frame["y"] = frame.a - frame.b + rng.standard_normal(2000)
    card = ModelCard(model="m", windows=[Tumbling(seconds=20)], allowed_lateness_seconds=10.0)
    found = made(written(frame, tmp_path, "parquet"), Choice(outputs=("y",)), card=card).card
    stream = Stream(found)
    for start, shift, turn in ((0, 0.0, 1), (20, 1.0, 1), (40, 0.0, -1), (80, 0.0, 1)):
        for part in np.array_split(frame.to_numpy() + [shift, 0.0, 0.0], 8):
            message = [
                {"model": "m", "features": {"a": a, "b": b}, "outputs": [turn * y],
                 "time": START / 1000 + start + 1}
                for a, b, y in part.tolist()
            ]  # fmt: skip
            stream.add(0, json.dumps(message).encode())
    merge = stream.merge()
    feed(merge, stream.flush())
    epoch = stream.catalogue.epoch("m")
    assert epoch is not None
    assert found.baseline is not None
    assert epoch.record.x_edges == found.baseline.x_edges
    drifts = {
        (message.window.start - START) // 1000: message
        for message in merge.publish(now=1)
        if isinstance(message, WindowDrift) and message.reference == "baseline"
    }
    assert set(drifts) == {0, 20, 40}, "the first window is compared too"
    for message in drifts.values():
        assert message.reference_window is None
        assert message.reference_rows == 2000
    same, shifted, turned = (drifts[start] for start in (0, 20, 40))
    for column in (*same.features, same.output_drift):
        assert column.ks is not None
        assert column.ks < 0.01
        assert column.psi is not None
        assert column.psi < 1e-3
        assert column.missing_change == 0.0
    assert same.attributions.procrustes == pytest.approx(0.0, abs=1e-3)
    a, b = shifted.features
    assert a.ks == pytest.approx(0.383, abs=0.03)  # 2 Φ(½) - 1
    assert a.wasserstein == pytest.approx(1.0, abs=0.02)
    assert b.ks is not None
    assert b.ks < 0.01
    assert turned.attributions.kendall == pytest.approx(-1.0)
    assert turned.features[0].ks is not None
    assert turned.features[0].ks < 0.01


def test_a_card_of_other_columns_is_no_reference(tmp_path: Path) -> None:
    found = made(written(table(500), tmp_path, "parquet"))
    samples = TrainingSamples()
    sample = samples.sample(found.card, found.layout)
    assert sample is not None
    assert samples.sample(found.card, found.layout) is sample, "read once"
    other = Layout(found.layout.columns[:-4], found.layout.outputs)
    assert samples.sample(found.card, other) is None
    bare = found.card.model_copy(update={"baseline": None})
    assert samples.sample(bare, found.layout) is None


def test_the_model_says_the_outputs(tmp_path: Path) -> None:
    import xgboost

    frame = table(1500)
    X, _ = columns_of(frame)
    taken = X[:, [0, 2, 4, 5, 6]]  # age, income and one column per level, none for the others
    booster = xgboost.train(
        {"max_depth": 2, "eta": 0.5},
        xgboost.DMatrix(taken, label=frame["margin"]),
        num_boost_round=5,
    )
    path = tmp_path / "model.ubj"
    booster.save_model(path)
    card = card_of(path).model_copy(
        update={
            "features": [
                Feature(name="age"),
                Feature(name="income"),
                Feature(name="plan", kind="categorical", levels=LEVELS),
            ]
        }
    )
    policy = LoadPolicy(roots=(tmp_path,))
    job: dict[str, Any] = {"card": card, "policy": policy}
    expected = booster.predict(xgboost.DMatrix(taken), output_margin=True).astype(float)
    for kind in ("parquet", "jsonl"):
        found = made(written(frame, tmp_path, kind), Choice(modelled=True), **job)
        assert found.card.outputs == ["output"]
        assert found.card.artefact == card.artefact
        baseline = found.card.baseline
        assert baseline is not None
        assert baseline.reference is not None
        batch = cir(X[:, [0, 2, 4, 5, 6, 7]], expected[:, None])
        np.testing.assert_allclose(baseline.reference.scores, batch.score, atol=2e-3)
        (output,) = baseline.reference.y_digests
        assert (output.low, output.high) == pytest.approx((expected.min(), expected.max()))
    with pytest.raises(AttributaryError, match="roots"):
        made(tmp_path / "train.parquet", Choice(modelled=True), card=card)


@pytest.mark.parametrize(
    ("choice", "what"),
    [
        (Choice(), "name the columns that hold the model's outputs"),
        (Choice(outputs=("margn",)), "did you mean 'margin'"),
        (Choice(outputs=("margin",), left_out=("lable",)), "--leave-out: no column 'lable'"),
        (Choice(outputs=("margin",), categorical=("noise",)), "more than 1 different texts"),
        (Choice(outputs=("plan",)), "must be numeric"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: Choice, what: str
) -> None:
    monkeypatch.setattr(module, "_MOST_TEXTS", 1)
    with pytest.raises(ConfigurationError, match=what.replace("1 d", r"1 d")):
        made(written(table(50), tmp_path, "parquet"), choice)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,y\n")
    for name, what in (
        ("none.csv", "there is no such file"),
        ("empty.csv", "is empty"),
        ("header.csv", "holds no row that can be used"),
        (".", "is a directory"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            made(tmp_path / name, Choice(outputs=("y",)))


def test_a_wide_model_keeps_coarser_digests(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((600, 500)), columns=[f"x{i}" for i in range(500)])
    frame["y"] = frame.x0
    found = made(written(frame, tmp_path, "parquet"), Choice(outputs=("y",))).card
    assert found.baseline is not None
    assert found.baseline.reference is not None
    sizes = [len(digest.means) for digest in found.baseline.reference.x_digests]
    assert max(sizes) <= 32_768 // 501 * 5 / 4
    assert len(found.to_bytes()) < 2 * 2**20
    sample = sample_of(found.baseline)
    assert sample is not None
    known = np.sort(frame.x7)
    median = sample.x_digests.quantile([0.5])[0, 7]
    assert np.searchsorted(known, median) / 600 == pytest.approx(0.5, abs=0.02)


def test_a_parquet_file_is_not_held_whole(tmp_path: Path) -> None:
    """Arrow reads ahead by default, every row group of the file."""
    path = tmp_path / "long.parquet"
    part = pa.table({f"x{i}": np.random.default_rng(i).standard_normal(20_000) for i in range(20)})
    with pa.parquet.ParquetWriter(path, part.schema) as writer:
        for _ in range(12):
            writer.write_table(part)
    before = most = pa.total_allocated_bytes()
    file = ParquetFile(path)
    for _ in file.batches(part.column_names):
        most = max(most, pa.total_allocated_bytes())
    assert file.progress() == (240_000, 240_000)
    assert most - before < path.stat().st_size / 3


def test_the_command_writes_a_card_that_register_takes(tmp_path: Path) -> None:
    path = written(table(500), tmp_path, "csv")
    with path.open("a") as file:
        file.write("1,2\n")
    out = tmp_path / "card.json"
    arguments = ["baseline", str(path), "--model", "churn", "--outputs", "margin,opposite"]
    arguments += ["--leave-out", "label,weight", "--out", str(out)]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert done.return_value == 1, "a row is left out"
    assert done.stdout == ""
    assert "left out: line 502: 2 fields instead of 9" in done.stderr
    assert "baseline of churn: 500 rows, 5 features (8 columns), 2 outputs" in done.stderr
    assert "group age + tenure + income: age, tenure, income" in done.stderr
    card = ModelCard.from_bytes(out.read_bytes())
    assert card.model == "churn"
    again = CliRunner().invoke(cli, [*arguments[:-2], "--no-groups"], standalone_mode=False)
    printed = ModelCard.from_bytes(again.stdout_bytes)
    assert {feature.group for feature in printed.features} == {None}
    for wrong, what in (
        (arguments[:2], "name the model"),
        (arguments[:1], "baseline FILE, or baseline --query SQL"),
        ([*arguments, "--database", "x.db"], "--database belongs to --query"),
        (arguments[:4], "who says the outputs"),
        ([*arguments, "--artefact", "x.ubj"], "x.ubj: No such file"),
        ([*arguments, "--categories", "codes"], "name it, --artefact"),
    ):
        result = CliRunner().invoke(cli, wrong, standalone_mode=False)
        assert isinstance(result.exception, ConfigurationError)
        assert what in str(result.exception)


@pytest.mark.parametrize("seed", range(20))
def test_hostile_columns_survive_the_card_to_the_last_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 3000))
    base = rng.standard_normal(rows)
    kinds = [
        base, 0.1 + 1e-17 * base, np.full(rows, 0.1), np.round(base), base * 5e-324,
        np.where(rng.random(rows) < 0.3, np.nan, base * 1e300), np.full(rows, np.nan),
        rng.lognormal(sigma=8, size=rows), np.where(rng.random(rows) < 0.5, np.inf, 0.3),
    ]  # fmt: skip
    X = np.column_stack([kinds[place] for place in rng.integers(0, len(kinds), 6)])
    Y = np.column_stack([X[:, 0], -X[:, 1]])
    grid = Grid.from_rows(X, Y)
    pane = PaneSketch(grid, blocks={"g": [0, 1]})
    pane.update(X, Y, rng.uniform(1e-6, 1e6, rows) if seed % 2 else None)
    state = WindowState.of(pane)
    baseline = baseline_of(grid, state, state.evaluate({"g": [0, 1]}))
    again = Baseline.model_validate_json(baseline.model_dump_json())
    assert again == baseline
    sample = sample_of(again)
    assert sample is not None
    assert sample.rows == rows
    levels = [0.0, 0.1, 0.5, 0.9, 1.0]
    for theirs, ours in ((sample.x_digests, state.x_digests), (sample.y_digests, state.y_digests)):
        np.testing.assert_array_equal(theirs.quantile(levels), ours.quantile(levels))
        np.testing.assert_array_equal(theirs.count, ours.count)
        np.testing.assert_array_equal(theirs.nan_count, ours.nan_count + ours.inf_count)


DIGEST: dict[str, Any] = {
    "means": [1.0, 2.0], "weights": [1.0, 1.0], "low": 1.0, "high": 2.0, "values": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"means": [2.0, 1.0]},
        {"weights": [1.0]},
        {"weights": [1.0, 0.0]},
        {"atoms": [2]},
        {"values": 0},
        {"low": 1.5},
        {"high": None},
        {"means": [1.0, float("nan")]},
        {"missing": -1},
    ],
    ids=str,
)
def test_digests_that_contradict_themselves_are_refused(change: dict[str, Any]) -> None:
    Digest(**DIGEST)
    with pytest.raises(ValidationError):
        Digest(**{**DIGEST, **change})


def test_a_baseline_is_of_one_shape() -> None:
    good: dict[str, Any] = {
        "x_digests": [DIGEST], "y_digests": [DIGEST], "scores": [[0.5]], "stderr": [[None]]
    }  # fmt: skip
    Baseline(x_edges=[[0.0]], y_edges=[[0.0]], rows=2, reference=good)
    for change in (
        {"x_digests": []},
        {"scores": [[0.5, 0.5]]},
        {"scores": []},
        {"stderr": [[]]},
        {"groups": {"g": []}},
        {"scores": [[1.5]]},
    ):
        with pytest.raises(ValidationError):
            Baseline(x_edges=[[0.0]], y_edges=[[0.0]], rows=2, reference={**good, **change})
