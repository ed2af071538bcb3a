"""The tables of MCIR-M's paper: what each claims, as far as is known, beside what is found here."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.mcir_estimators import worse_than_best
from benchmarks.mcir_interactions import pairs_seen
from benchmarks.mcir_redundancy_tables import BY_DISTANCE, between, by_kind, credited
from benchmarks.mcir_speed import LIGHT, seconds
from benchmarks.suite import number, table

_PUBLISHED_SECONDS = 5.8
_SUITES = ("mcir-redundancy", "mcir-estimators", "mcir-conditioning", "mcir-interactions")


def section(results: dict[str, Any]) -> str:
    """Return the overview, from the results of all suites; nothing where one of them is missing."""
    if not set(_SUITES) <= set(results):
        return ""
    redundancy, estimators, conditioning, interactions = (
        results[suite]["cases"] for suite in _SUITES
    )
    rows = [
        *_redundancy(redundancy),
        _switching(estimators),
        _dimension(conditioning),
        _higher_order(interactions),
    ]
    if "mcir-speed" in results:
        rows.append(_runtime(results["mcir-speed"]["cases"]))
    return "\n\n".join(
        [
            "## MCIR-M beside its paper",
            "By the numbers of the paper's tables. Its text could not be had. What a table claims is "
            "known from the abstract of the submission (OpenReview nRQhWIzaM5), that of the later "
            "version (arXiv 2610.01641), its method, and two of its figures of runtime; the simulation "
            "HouseEnergy-Sim and PCIR are those of the authors' public code "
            "(github.com/Poushali96/MCIR). Numbers of its tables are not known, except those two, so "
            "it is directions that are compared. Of UCI HAR, its second data set, nothing is shown "
            "here, because it would have to be downloaded; rows of 561 features are synthetic.",
            table(
                ["tables", "what they are said to show", "found here", "agreement"], rows, left=4
            ),
        ]
    )


def _redundancy(cases: dict[str, Any]) -> list[list[str]]:
    _, homes, light = by_kind(cases)
    rhos = list(homes[0]["rho"])
    near, exact = rhos[-2:]
    names = [name for name in homes[0]["base"] if not name.startswith("MCIR")]
    left, gone = (credited(homes, rho, "MCIR-M, C", "original") for rho in (near, exact))
    by_distance = credited(homes, near, BY_DISTANCE, "original")
    copies = max(
        credited(homes, rho, by, "copy") for rho in rhos for by in ("MCIR-M, C", BY_DISTANCE)
    )
    others = {name: credited(homes, near, name, "copy") for name in names}
    shares = _listed(f"{share:.0f} % ({name})" for name, share in others.items())
    some = [name for name, share in others.items() if share > 10]
    rows = [
        [
            "8, 26, 27",
            "the score of a redundant feature goes to zero; others divide importance among copies",
            f"C of the original falls to {left:.0f} % of what it was beside copies of correlation {near} "
            f"(by nearest neighbours {by_distance:.0f} %), to {gone:.0f} % beside exact ones; a copy gets "
            f"{copies:.0f} % at most. At {near} others give the copy {shares} of the feature's credit",
            ("agrees" if gone < 1 else "differs: the score stays")
            + ("" if len(some) == len(others) else f"; divided by {_listed(some) or 'none'} only"),
        ]
    ]
    tau = {
        name: float(np.mean(between(homes, name)[0])) for name in ("MCIR-M, U", "MCIR-M, C", *names)
    }
    own = max(tau["MCIR-M, U"], tau["MCIR-M, C"])
    steadier = [name for name in names if tau[name] > own]
    rows.append(
        [
            "8, 26, 27",
            "rankings steadier than by SHAP, SAGE, HSIC, MI and CIR (first abstract); comparisons mixed "
            "(later one)",
            f"τ between households {tau['MCIR-M, U']:.2f} for U and {tau['MCIR-M, C']:.2f} for C; "
            + _listed(f"{tau[name]:.2f} for {name}" for name in names),
            "agrees"
            if not steadier
            else ("differs" if len(steadier) == len(names) else "mixed, as the later abstract says")
            + ": where little is unique its order is chance, and neighbourhoods are chosen anew",
        ]
    )
    quarter = light["fractions"].get("0.25", next(iter(light["fractions"].values())))
    share = quarter["kept, U, head"][0]
    kept = 200 * share / (1 + share)
    rows.append(
        [
            "abstract",
            "light runs keep over 95 % of the top features of the synthetic data",
            f"with a quarter of {light['rows']:,} rows {kept:.0f} % of the first eight by U",
            "agrees"
            if kept >= 95
            else "differs: some of the eight say little alone, and their order is within their error",
        ]
    )
    return rows


def _switching(cases: dict[str, Any]) -> list[str]:
    found = {name.split(", ", 1)[1]: result for name, result in cases.items()}
    told, all_good = [], True
    for n in next(iter(found.values()))["rows"]:
        choice, worse = worse_than_best(found, n)
        all_good = all_good and not worse
        told.append(
            f"with {int(n):,} rows as good as the best fixed estimator in {len(choice) - len(worse)} of "
            f"{len(choice)} distributions"
            + (f", worse in {_listed(name for name, *_ in worse)}" if worse else "")
        )
    return [
        "15, 34 to 37",
        "switching by the least bootstrap error, beside the fixed estimators",
        "; ".join(told),
        "agrees" if all_good else "agrees in part: an error bar does not see a bias",
    ]


def _dimension(cases: dict[str, Any]) -> list[str]:
    found = {result["estimator"]: result for result in cases.values()}
    n = list(found["copula"]["rows"])[-1]
    sizes = found["copula"]["neighbours"]
    first, last = sizes.index(1), len(sizes) - 1
    error = {
        name: [abs(result["rows"][n]["error"][place][2]) for place in (first, last)]
        for name, result in found.items()
        if name != "plugin"
    }
    grows = [name for name, (one, most) in error.items() if most > 2 * one + 0.01]
    steady = [name for name in error if name not in grows]
    return [
        "31",
        "a small conditioning set: estimates get worse as it grows",
        f"error of C with {int(n):,} rows, 1 and {sizes[last]} neighbours: "
        + _listed(f"{one:.3f} and {most:.3f} ({name})" for name, (one, most) in error.items()),
        "agrees"
        if not steady
        else f"agrees for {_listed(grows)}; not for {_listed(steady)}, which rests on correlations alone",
    ]


def _higher_order(cases: dict[str, Any]) -> list[str]:
    found = list(cases.values())
    n = list(found[0]["rows"])[-1]
    seen = {screen: pairs_seen(found, n, screen) for screen in found[0]["rows"][n]["screens"]}
    games = {result["game"] for result in found}
    pairwise = {game for screen in seen if screen != "interaction" for game in seen[screen]}
    missed = sorted(games - set(seen["interaction"]))
    return [
        "39",
        "pairwise screens fail where features matter only together; screens aware of interactions do not",
        f"with {int(n):,} rows pairwise screens find the pair in {len(pairwise)} of {len(games)} games, "
        f"`interaction` in {len(seen['interaction'])}"
        + (f", not in {_listed(missed)}" * bool(missed)),
        "agrees" + ("; what only three features show stays hidden" if missed else "")
        if not pairwise and seen["interaction"]
        else "differs",
    ]


def _runtime(cases: dict[str, Any]) -> list[str]:
    found = [result for result in cases.values() if "failed" not in result]
    last = found[-1]
    taken = {does: seconds(last, does) for does in ("everything", "scoring")}
    light = "light runs are not timed here"
    if any(entry["does"] == LIGHT for entry in last["entries"]):
        times = taken["everything"] / seconds(last, LIGHT)
        light = f"{LIGHT} take {number(times)} times less"
    beside = [
        f"{does} {number(seconds(last, does))} s"
        for does in ("TreeSHAP", "permutation importance")
        if any(entry["does"] == does for entry in last["entries"])
    ]
    return [
        "17, 29, 38",
        f"{_PUBLISHED_SECONDS} s for screening, calibration and scoring of 561 features and 2,000 rows; "
        "451 s in another table; light runs many times faster",
        f"{number(taken['everything'])} s for all of it with {last['features']} features and "
        f"{last['rows']:,} rows, scoring {number(taken['scoring'])} s"
        + (f" ({', '.join(beside)})" if beside else "")
        + f"; {light}",
        f"agrees that it takes seconds: {number(_PUBLISHED_SECONDS / taken['everything'])} times less than "
        "the smaller figure; why the larger one is larger is not known"
        if taken["everything"] < _PUBLISHED_SECONDS
        else "differs: slower than its smaller figure",
    ]


def _listed(items: Any) -> str:
    items = list(items)
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else "".join(items)
