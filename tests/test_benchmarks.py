"""The benchmarks run, in their quick form and without peers, and the page is what they measured."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
# All suites in their quick form, on a machine that may be busy.
pytestmark = pytest.mark.timeout(580)
PAGES = {
    "performance": (
        "throughput",
        "state",
        "accuracy",
        "coverage",
        "client",
        "mcir-speed",
        "ordshap-overhead",
    ),
    "scale": ("capacity", "outages", "unit-costs"),
    "results": (
        "t_explainer",
        "speed",
        "ordshap-intervals",
        "ordshap-calls",
        "ordshap-tokens",
        "ordshap-text",
        "mcir-redundancy",
        "mcir-estimators",
        "mcir-conditioning",
        "mcir-interactions",
        "drift-delay",
        "prequential",
        "excir-light",
        "excir-centring",
        "excir-groups",
        "excir-sufficiency",
        "excir-diagnostics",
    ),
}


def benchmarks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def peer(name: str) -> ModuleType:
    """A file of the peers' processes that needs numpy alone."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks/peers" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results and the pages of one quick run."""
    path = tmp_path_factory.mktemp("benchmarks")
    done = benchmarks(
        *(suite for suites in PAGES.values() for suite in suites),
        "--quick",
        "--no-peers",
        "--results",
        path / "results",
        "--pages",
        path / "pages",
    )
    assert done.returncode == 0, done.stderr
    return path


def test_the_quick_form_measures_every_suite(folder: Path) -> None:
    for name, suites in PAGES.items():
        page = (folder / "pages" / f"{name}.md").read_text(encoding="utf-8")
        for suite in suites:
            assert f"`python -m benchmarks {suite}`" in page
            kept = json.loads((folder / "results" / f"{suite}.json").read_text(encoding="utf-8"))
            assert kept["cases"]
            assert kept["quick"]
        assert not re.search(r"\bnan\b", page.lower())
        assert str(Path.home()) not in page
        assert str(ROOT) not in page
    assert not (folder / "results" / "unfinished.json").exists()
    page = (folder / "pages" / "performance.md").read_text(encoding="utf-8")
    assert len([line for line in page.splitlines() if line.startswith("| attributary |")]) >= 9


def test_what_it_measures_is_sane(folder: Path) -> None:
    cases = json.loads((folder / "results" / "accuracy.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 7
    for entry in cases.values():
        assert 0.0 < entry["worst"] < 5e-3
        assert entry["worst"] < entry["warm_up"]
    cases = json.loads((folder / "results" / "throughput.json").read_text(encoding="utf-8"))[
        "cases"
    ]
    for case in cases.values():
        for entry in case["entries"]:
            # Between a thousand and a thousand million values a second on any machine.
            values = case["columns"] * entry["rows"] / min(entry["seconds"])
            assert 1e3 < values < 1e9
    cases = json.loads((folder / "results" / "state.json").read_text(encoding="utf-8"))["cases"]
    for entry in (entry for case in cases.values() for entry in case.get("sizes", ())):
        # On the wire: the parts, and little else; in memory: at least the cells in float64.
        assert entry["wire_cells"] + entry["wire_digests"] <= entry["wire"] <= entry["memory"]
        cells = entry["columns"] * entry["outputs"] * entry["cells"] ** 2
        assert entry["memory_cells"] > 4 * 8 * cells


def test_the_client_is_held_to_its_floors_beside_controls(folder: Path) -> None:
    kept = json.loads((folder / "results" / "client.json").read_text(encoding="utf-8"))
    imports = kept["cases"]["client, imports"]
    page = (folder / "pages" / "performance.md").read_text(encoding="utf-8")
    for name in ("Publisher", "PredictionMiddleware", "subscribe", "Explainer"):
        assert 0.0 < imports[f"from attributary import {name}"] < 60_000.0
        assert f"| ms of `from attributary import {name}` | 150 |" in page
    controls = [line for line in page.splitlines() if line.startswith("| control | nothing |")]
    assert len(controls) == 3


def test_capacity_is_computed_from_the_costs_of_this_run(folder: Path) -> None:
    def cases(suite: str) -> dict[str, Any]:
        path = folder / "results" / f"{suite}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["cases"]
        return found

    costs, plans = cases("unit-costs"), cases("capacity")
    (shape,) = [case for case in costs.values() if "columns" in case]
    for entry in shape["sketches"]:
        # From a microsecond to a second on any machine.
        assert 1e-6 < entry["encode"] < 1.0
        assert 1e-6 < entry["merge"] < 1.0
    checks = [case["pairs"] for case in plans.values() if "pairs" in case]
    assert len(checks) == 2
    for pairs in checks:
        # Counts and bytes, which no clock disturbs; few seconds, so not within a quarter.
        for name in ("sketches", "sketch bytes", "memory of ingest"):
            measured, predicted = pairs[name]
            assert predicted == pytest.approx(measured, rel=0.6), name
    needed = plans["capacity, what it needs"]["variants"]
    assert [each["name"] for each in needed] == list("ABCDEF")
    # Keys alone take most of the series and of the sketches away.
    assert needed[1]["series"] < needed[0]["series"] / 2
    assert needed[1]["sketches"] < needed[0]["sketches"] / 5
    quiet, crash = (cases("outages")[f"outages, {name}"] for name in
                    ("nothing fails", "an ingest worker crashes"))  # fmt: skip
    assert quiet["replayed"] == 0.0 < crash["replayed"]
    assert quiet["p99"] < crash["worst_p99"]
    page = (folder / "pages" / "scale.md").read_text(encoding="utf-8")
    assert "### Where it breaks first" in page


def test_the_stages_of_mcir_are_its_parts(folder: Path) -> None:
    kept = json.loads((folder / "results" / "mcir-speed.json").read_text(encoding="utf-8"))
    assert [case["features"] for case in kept["cases"].values()] == [20, 50]
    for case in kept["cases"].values():
        assert case["same_size"]
        assert case["apart"] < 1e-12
        assert case["ranked"] > case["features"] / 2
        taken = {
            entry["does"]: min(processor for processor, _ in entry["seconds"])
            for entry in case["entries"]
        }
        assert 0.0 < taken["scoring"] < taken["everything"] < 10.0
    page = (folder / "pages" / "performance.md").read_text(encoding="utf-8")
    assert "| seconds of scoring, 50 features | 0.05 |" in page
    assert "too few features" in page


def test_mcir_is_laid_beside_its_paper(folder: Path) -> None:
    page = (folder / "pages" / "results.md").read_text(encoding="utf-8")
    _, _, overview = page.partition("## MCIR-M beside its paper")
    rows = [line for line in overview.split("\n## ")[0].splitlines() if line.startswith("| ")]
    tables = ["8, 26, 27", "8, 26, 27", "abstract", "15, 34 to 37", "31", "39", "17, 29, 38"]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[2:]] == tables
    agreement = [row.split(" | ")[-1] for row in rows[2:]]
    assert all(one.startswith(("agrees", "differs", "mixed")) for one in agreement)
    # The pair of signs: no pairwise screen finds it, the interaction screen does.
    assert "in 0 of 1 games, `interaction` in 1" in rows[-2]


def test_mcir_is_measured_against_exact_values(folder: Path) -> None:
    def cases(suite: str) -> dict[str, Any]:
        kept = json.loads((folder / "results" / f"{suite}.json").read_text(encoding="utf-8"))
        return {name.rpartition(", ")[2]: case for name, case in kept["cases"].items()}

    found = cases("mcir-redundancy")
    chains = {one["alpha"]: one for one in found["exact values"]["chains"]}
    for alpha, score in ((0.75, 0.727884478), (0.9, 0.453416561)):
        exact = [score, 0.0, 0.557885891]
        assert chains[alpha]["exact"] == pytest.approx(exact, abs=1e-9)
        assert chains[alpha]["mean"] == pytest.approx(exact, abs=0.1)
        assert chains[alpha]["copy"]["CIR"][0] > 0.5 > chains[alpha]["copy"]["MCIR-M, U"][0]
    for rho, entry in found["household 0"]["rho"].items():
        # Exact copies: nothing is unique to either, and what looks at one feature sees no change.
        one, other = entry["MCIR-M, C"], entry["CIR"]
        assert max(one["original"]) < (1e-3 if rho == "1.0" else 1.0)
        assert sum(one["original"]) < 0.6 * sum(one["before"])
        assert other["original"] == pytest.approx(other["before"], abs=0.05)

    found = cases("mcir-estimators")
    # The exact scores of the tables, and the estimators that see them.
    for name, score, estimator in (
        ("Gaussian", 0.727884478, "copula"),
        ("AND", 0.762614720, "plugin"),
        ("XOR", 1.0, "mixed"),
    ):
        assert found[name]["exact"][0][0] == pytest.approx(score, abs=1e-9)
        assert found[name]["rows"]["200"]["estimators"][estimator]["rmse"] < 0.15
    product = found["product"]["rows"]["200"]["estimators"]
    assert product["knn"]["rmse"] < 0.2 < product["copula"]["rmse"]

    for case in cases("mcir-conditioning").values():
        assert [row[2] for row in case["exact"]] == sorted([r[2] for r in case["exact"]])[::-1]
        assert max(abs(row[0]) for row in case["rows"]["200"]["error"]) < 0.3

    (signs,) = cases("mcir-interactions").values()
    screens = {name: entry["mean"] for name, entry in signs["rows"]["300"]["screens"].items()}
    assert screens["interaction"][2] == 1.0
    assert all(mean[3] == 0.0 for name, mean in screens.items() if name != "interaction")
    scored = {name: entry["mean"][1] for name, entry in signs["rows"]["300"]["scored"].items()}
    assert scored["interaction, knn"] > 0.2 > max(scored["pearson, knn"], 0.0)
    assert scored["interaction, copula"] < 0.05


@pytest.fixture(scope="module")
def of_mcir() -> list[Any]:
    """Known information, the authors' PCIR of some columns, and of their simulation's with its order."""
    code = (
        "import json\n"
        "import numpy as np\n"
        "from scipy.stats import kendalltau\n"
        "from benchmarks import mcir_house_energy as house\n"
        "from benchmarks.mcir_baselines import pcir\n"
        "from benchmarks.mcir_distributions import known, student_information, covariance\n"
        "from benchmarks.mcir_interactions import GAMES, exact\n"
        "near = student_information(covariance(0.75), 1e7, [3], [0], [1])\n"
        "found = {name: [*one.unique, one.joint] for name, one in known().items()}\n"
        "X, y = house.draw(4000, 7)\n"
        "places = [-house.PUBLISHED['PCIR'].index(name) for name in house.NAMES]\n"
        "tau = kendalltau(pcir(X, y), places).statistic\n"
        "few = pcir(np.array([[1.0, 5], [2, 5], [6, 5]]), np.array([0.0, 4, 5])).tolist()\n"
        "games = {name: exact(name) for name in GAMES}\n"
        "means = {**dict(zip(house.NAMES, X.mean(axis=0))), 'energy': y.mean()}\n"
        "print(json.dumps([found, near, games, few, tau, means]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def test_the_authors_score_has_its_value_and_their_order(of_mcir: list[Any]) -> None:
    few, tau, means = of_mcir[3:]
    # Means 3, 5 and of the output 3; of the second, 6 of 20 squares lie between.
    assert few == pytest.approx([0.0, 0.3], abs=1e-12)
    # Their run had 800 of these rows, and the outputs of a forest.
    assert tau > 0.9
    # By hand from the equations; a standard error is .01 or less, of the temperature .16.
    for name, mean in {
        "television": 0.4 * 6 / 24,
        "computer": 0.25 * 15 / 24,
        "lighting": 0.3 * 13 / 24,
        "dryer": 0.55 * 2 / 7,
        "space heater": 0.7 * 0.382,
        "hour sin": 0.0,
        "outdoor temperature": 15.0,
        "energy": 2.225,
    }.items():
        assert means[name] == pytest.approx(mean, abs=0.02 + 0.02 * mean), name


def test_known_information_is_what_quadrature_by_another_rule_gives(of_mcir: list[Any]) -> None:
    found, near, games = of_mcir[:3]
    assert near == pytest.approx(found["Gaussian"][0], abs=1e-6)
    # Gauss-Hermite nodes in place of the trapezoid rule.
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()

    def entropy(means: np.ndarray, shares: np.ndarray, variance: np.ndarray) -> float:
        """Of a mixture of normals, by the mean of -log p over the nodes of each."""
        total = 0.0
        for mean, share, own in zip(means, shares, variance, strict=True):
            q = mean + np.sqrt(own) * nodes
            bells = np.exp(-((q[:, None] - means) ** 2) / (2 * variance)) / np.sqrt(
                2 * np.pi * variance
            )
            total -= share * (weights @ np.log(bells @ shares))
        return total

    def noise(variance: float) -> float:
        return 0.5 * float(np.log(2 * np.pi * np.e * variance))

    one, two = np.ones(2), np.array([0.0, 1.0])
    coin = entropy(two, one / 2, one / 4) - noise(0.25)
    assert found["coin and number"][2] == pytest.approx(coin, abs=1e-4)
    zeros = entropy(np.zeros(2), one / 2, np.array([0.25, 1.25])) - noise(0.25)
    assert found["half zeros"][2] == pytest.approx(zeros, abs=1e-4)
    product = weights @ np.log1p(4 * nodes**2) / 2
    assert found["product"][0] == pytest.approx(product, abs=1e-3)
    signs = entropy(np.array([-1.0, 1.0]), one / 2, one / 2) - noise(0.5)
    assert games["signs"] == pytest.approx([signs, 0.0], abs=1e-4)
    assert games["gate"][0] == pytest.approx(np.log(3) / 4, abs=1e-9)


def test_excir_is_measured_against_known_answers(folder: Path) -> None:
    def cases(suite: str) -> dict[str, Any]:
        kept = json.loads((folder / "results" / f"{suite}.json").read_text(encoding="utf-8"))
        return {name.rpartition(", ")[2]: case for name, case in kept["cases"].items()}

    # All rows are all rows, and fewer agree less.
    light = cases("excir-light")["breast cancer"]
    whole, fifth = light["light"]["1.0"], light["light"]["0.2"]
    assert [whole[name][0] for name in ("jaccard", "spearman", "kendall")] == [1.0, 1.0, 1.0]
    assert max(whole[name][0] for name in ("procrustes", "kl", "worst")) < 1e-12
    assert 0.2 > fifth["worst"][0] > light["light"]["0.75"]["worst"][0] > 0.0
    assert 0.5 < light["apart"]["0.2"]["spearman"][0] < 1.0
    # Of 30 features, two heads of 8 drawn at random, by drawing them.
    rng = np.random.default_rng(0)
    shared = (rng.permuted(np.tile(np.arange(30), (4000, 1)), axis=1)[:, :8] < 8).sum(axis=1)
    assert light["chance"] == pytest.approx((shared / (16 - shared)).mean(), abs=0.005)

    centring = cases("excir-centring")
    assert centring["normal"]["centres"]["midhinge"]["moved"][0] == 0.0
    both = centring["both skewed"]
    for name, about in (("midhinge", 0.097120157), ("median", 0.220544736), ("mean", 0.0)):
        mean, spread, _ = both["centres"][name]["nothing"]
        assert abs(mean - about) < 4 * spread / both["repetitions"] ** 0.5 + 0.01
    assert both["held"] < 0.9 < centring["normal"]["held"]

    groups = cases("excir-groups")
    plain, mirrored = (groups[name]["rho"]["0.8"] for name in ("plain", "mirrored"))
    assert plain["block, iqr"]["truth"][0] > 0.9 > plain["sum"]["truth"][0]
    assert mirrored["block, iqr"]["truth"][0] < 0.5 < 0.9 < mirrored["block, turned"]["truth"][0]

    fit = cases("excir-sufficiency")["wine"]["fit"]
    assert len(fit) == 11
    assert all(0.7 < value <= 1.0 for values in fit.values() for value in values)

    diagnostics = cases("excir-diagnostics")
    assert diagnostics["wine"]["pairs"]["ExCIR, correlation"]["rho"][0] > 0.8
    found = diagnostics["Friedman"]["methods"]
    assert found["permutation"]["places"][2] < 6 < found["ExCIR"]["places"][2]
    assert found["ExCIR"]["places"][3] == 1.0


def test_the_ablation_scores_about_the_midhinge_as_we_do() -> None:
    code = (
        "import json\n"
        "import numpy as np\n"
        "from attributary.workers.maths.cir import cir\n"
        "from benchmarks.excir_centring import CENTRES, cir_about, exact_nothing\n"
        "x = np.array([[0, 4, 0], [1, 3, 4], [2, 2, 0], [3, 1, 4], [4, 0, 0.0]])\n"
        "y = np.array([1, 2, 3, 4, 10.0])\n"
        "wide = np.random.default_rng(0).lognormal(size=(500, 4))\n"
        "own = cir_about(wide, wide[:, 0] ** 2, CENTRES['midhinge'])\n"
        "gap = np.abs(own - cir(wide, wide[:, 0] ** 2).score[0]).max()\n"
        "draws = np.random.default_rng(1).lognormal(size=(400_000, 2))\n"
        "draws[:, 1] **= 8.5**0.5 / 2\n"
        "far = {name: cir_about(draws[:, :1], draws[:, 1], CENTRES[name])[0] - 0.5 - exact_nothing(name)"
        " for name in ('midhinge', 'median', 'mean')}\n"
        "print(json.dumps([cir_about(x, y, CENTRES['midhinge']).tolist(), gap, far]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    exact, gap, far = json.loads(done.stdout)
    assert exact == pytest.approx([1.0, 0.0, 3 / 11], abs=1e-12)
    assert gap < 1e-12
    assert max(abs(value) for value in far.values()) < 0.01


def test_explainers_are_measured(folder: Path) -> None:
    kept = json.loads((folder / "results" / "t_explainer.json").read_text(encoding="utf-8"))
    assert {case["model"] for case in kept["cases"].values()} == {"network", "XGBoost"}
    for case in kept["cases"].values():
        assert case["accuracy"] > 0.8
        contributions, slopes, against_zero = case["entries"]
        assert contributions["ris_max"] != slopes["ris_max"]
        for entry in (contributions, slopes, against_zero):
            assert len(entry["seconds"]) == 2
            assert all(error >= 0.0 for error in entry["error"].values())
            assert entry["res"] == 0.0
            assert entry["ris_max"] >= entry["ris_mean"] > 0.0
            assert entry["ros_max"] >= entry["ros_mean"] > 0.0
        # What a contribution says is what moves the output when it is taken away.
        assert contributions["insertion"] > contributions["deletion"]
        assert contributions["lap"] >= slopes["lap"]
        # Differences are of the same rows, against the contributions.
        assert contributions["behind"]["insertion"] == [0.0, 0.0]
        more, _ = slopes["behind"]["insertion"]
        assert more == pytest.approx(contributions["insertion"] - slopes["insertion"], abs=1e-9)
    kept = json.loads((folder / "results" / "speed.json").read_text(encoding="utf-8"))
    (case,) = kept["cases"].values()
    assert all(0.0 < time < 10.0 for entry in case["entries"] for time in entry["seconds"])
    # Four probes a feature, and little else.
    assert case["model_rows"] >= case["rows"] * (1 + 4 * 16)
    page = (folder / "pages" / "results.md").read_text(encoding="utf-8")
    assert page.count("| T-Explainer |") >= 2
    assert "figures/" not in page


def test_an_interrupted_run_goes_on(folder: Path, tmp_path: Path) -> None:
    """Cases kept for the same code and machine are not measured again, others are."""
    kept = json.loads((folder / "results" / "coverage.json").read_text(encoding="utf-8"))
    name, result = next(iter(kept["cases"].items()))
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from benchmarks.journal import Journal\n"
        "name, result = json.loads(sys.argv[1])\n"
        "Journal(Path(sys.argv[2]), {'code': 1}, fresh=False).keep(name, result)\n"
        "for key, fresh in (({'code': 1}, False), ({'code': 2}, False), ({'code': 1}, True)):\n"
        "    print(len(Journal(Path(sys.argv[2]), key, fresh=fresh).cases))\n"
    )
    arguments = [json.dumps([name, result]), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "0", "0"]


def test_a_peer_that_cannot_be_installed_is_named_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "requirements-river.txt").write_text("--no-index\nriver==0.0.1\n")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from benchmarks import environments, streaming_maths\n"
        "from benchmarks.suite import Options\n"
        "environments.HERE = Path(sys.argv[1])\n"
        "environments.ENVIRONMENTS = Path(sys.argv[1]) / 'environments'\n"
        "case = streaming_maths.measure(100, 1, ('river',), Options(quick=True))\n"
        "print(streaming_maths.section({'case': case}))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("| river |")]
    assert "could not be installed" in line
    assert "river==0.0.1" in line
    assert line.count("|") == 8
    assert str(tmp_path) not in done.stdout


def test_an_unknown_suite_is_named() -> None:
    done = benchmarks("unheard-of")
    assert done.returncode == 2
    assert "no suite is named unheard-of; choose from throughput" in done.stderr


def test_the_pages_are_what_the_results_say(tmp_path: Path) -> None:
    """`python -m benchmarks --write-only` writes them again after a change of their words."""
    done = benchmarks("--write-only", "--pages", tmp_path)
    assert done.returncode == 0, done.stderr
    for name in PAGES:
        written = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert written == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for figure in re.findall(r"\]\((figures/[^)]+)\)", written):
            assert (ROOT / "docs" / figure).is_file()


@pytest.mark.integration
def test_the_whole_way_is_measured_and_its_floors_are_told() -> None:
    code = (
        "import json\n"
        "from benchmarks import endtoend as e\n"
        "from benchmarks.suite import Options\n"
        "found = e.throughput('embedded', 'json', 1, Options(quick=True))\n"
        "pages = [e.section({'e': {**found, 'rows': n, 'seconds': 10}}) for n in (10**6, 10**5)]\n"
        "print(json.dumps([found, *pages]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found, fast, slow = json.loads(done.stdout)
    assert 0 < found["rows"] < 100_000
    assert 0 < found["cpu_seconds"] < 1.2 * found["seconds"]
    assert 50 * 2**20 < found["rss"] < 2 * 2**30
    assert "| embedded | at least 15,000 | 100,000 | yes |" in fast
    assert "| 10,000 | **no** |" in slow


def test_ordshap_tells_the_tokens_apart(folder: Path) -> None:
    path = folder / "results" / "ordshap-tokens.json"
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"].values():
        assert case["ordshap"]["recognised"] == [1.0] * 7
    path = folder / "results" / "ordshap-calls.json"
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"].values():
        ours = case["lines"]["ours"][-1]
        for peer in ("the paper's sampling", "the paper's least squares"):
            theirs = case["lines"][peer][-1]
            for which in range(2):
                cost = theirs["error"][which] ** 2 * theirs["calls"]
                assert ours["error"][which] ** 2 * ours["calls"] < cost


def test_ordshap_takes_little_time_of_its_own(folder: Path) -> None:
    path = folder / "results" / "ordshap-overhead.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"].values()
    if all("failed" in case for case in cases):
        pytest.skip("torch is not installed")
    for case in cases:
        assert 0.0 < case["model_seconds"] < case["seconds"]
    calls = {(case["length"], case["calls"]) for case in cases}
    assert len(calls) == len({length for length, _ in calls}) == 2


def test_the_words_to_keep_and_their_order_are_judged_by_the_output() -> None:
    judge = peer("order_evaluation")
    rng = np.random.default_rng(0)
    orders = rng.permuted(np.tile(np.arange(3), (5, 1)), axis=1)
    asked = []

    def worth(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return rows.sum(axis=1)

    model, x = judge.Remembering(worth, batch_size=7), np.array([3, 1, 2])
    # 0, 3, 5, 6 and 6, 3, 1, 0 for 0 to 3 words, whatever the order.
    assert judge.areas(model, x, 0, [9.0, 7.0, 8.0], orders) == pytest.approx([11 / 3, 7 / 3])
    assert judge.areas(model, x, 0, [7.0, 9.0, 8.0], orders) == pytest.approx([7 / 3, 11 / 3])
    assert max(asked) <= 7
    # The words that are kept stand where each order puts them.
    place = judge.Remembering(lambda rows: (rows == 3) @ np.arange(3.0))
    at = np.mean(np.argmax(orders == 0, axis=1))
    assert judge.areas(place, x, 0, [2.0, 1.0, 0.0], orders) == pytest.approx([at * 5 / 6, at / 6])
    rising, falling = judge.reordered(lambda rows: rows @ [100, 10, 1], x, [0.5, -1.0, 0.1])
    assert (rising, falling) == (123, 321)


def test_order_alone_tells_the_class_of_a_sentence() -> None:
    made = peer("order_sentences")
    sentences, labels = made.draw(20_000, np.random.default_rng(1))
    known = {tuple(words): label for words, label in zip(sentences, labels, strict=True)}
    assert max(map(len, known)) <= 14
    pairs = 0
    for words, label in known.items():
        (good,) = [k for k, word in enumerate(words) if word in made.GOOD]
        (bad,) = [k for k, word in enumerate(words) if word in made.BAD]
        turned = list(words)
        turned[good], turned[bad] = words[bad], words[good]
        if tuple(turned) in known:
            pairs += 1
            assert known[tuple(turned)] != label
    assert pairs > 1_000
    assert known.get(("the", "film", "was", "not", "bad", "but", "good"), 1) == 1


def test_drift_is_told_as_late_as_the_rules_say(folder: Path) -> None:
    kept = json.loads((folder / "results" / "drift-delay.json").read_text(encoding="utf-8"))
    code = (
        "import json, sys\n"
        "from benchmarks import drift_delay as d\n"
        "found = d.summary(json.load(sys.stdin))\n"
        "told = [[3600, 'input:x5'], [3900, 'input:x5'], [4500, 'input:x5'], [4500, 'input:x1']]\n"
        "late = [d.delay('input, abrupt', told, 3600, lasting=on) for on in (True, False)]\n"
        "print(json.dumps([found, late, d.false_windows(told, 0, 14)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(kept["cases"]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found, late, wrong = json.loads(done.stdout)
    # On before the change, off in between, on again; a rule that does not last tells at once.
    assert (late, wrong) == ([900, 300], 2)
    alerts, first = found["attributary, alerts"], found["attributary, first window"]
    # One standard deviation is told by the first window that has it, and by the alert ten minutes later.
    assert first["delays"]["input, abrupt"] == [300]
    assert alerts["delays"]["input, abrupt"] == [3300]
    assert first["delays"]["concept, abrupt"] != [None]
    assert alerts["false"]["all"][0] == 0


def test_a_learning_model_and_its_explanation_follow_a_change(folder: Path) -> None:
    kept = json.loads((folder / "results" / "prequential.json").read_text(encoding="utf-8"))
    (case,) = kept["cases"].values()
    lead = [max(range(8), key=window.__getitem__) for window in case["strengths"]]
    assert lead[:3] == [0, 0, 0]
    assert lead[-1] == 3
    assert max(case["error"][1:3]) < case["error"][3] > case["error"][5]
