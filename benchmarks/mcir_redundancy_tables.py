"""The tables and pictures of the suite on features that repeat each other, from its results alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from attributary.workers.maths.agreement import jaccard_at_k, kendall_tau
from benchmarks import mcir_house_energy as house
from benchmarks.mcir_baselines import ABOUT, MODEL_FREE, OF_MODEL
from benchmarks.suite import Figure, Panel, table

#: The score of nearest neighbours, of originals and copies alone.
BY_DISTANCE = "MCIR-M, C by knn"
_NEAR = "0.99"


def section(results: dict[str, Any]) -> str:
    """Return the tables: exact values, the household, copies, stability, light samples."""
    chains, homes, light = by_kind(results)
    failed = next((one["failed"] for one in results.values() if one.get("failed")), None)
    first = chains[0]
    parts = [
        "For the paper's tables on redundancy (8, 26 and 27) and on its lightweight samples. The "
        "household is its HouseEnergy-Sim, from the authors' public code; the paper's text could not be "
        "had, so which near-duplicates it adds is not known, and its numbers cannot stand beside these.",
        "### Against exact values",
        "Q = X₁ + ½X₃ + ε, Var ε = ¼, X₂ = αX₁ + √(1 - α²)E: X₂ says nothing that X₁ does not. Φ(1) = "
        f"{{2}}, Φ(2) = Φ(3) = {{1}}, {first['rows']:,} rows, {first['repetitions']} repetitions: exact "
        "score, mean ± standard deviation, and the share of 95 % intervals that hold it (to .001, "
        "because at a bound an interval has no width).",
        _chain(chains),
        f"The credit of X₂ as a share of that of X₁, mean of {len(first['copy']['CIR'])} samples; "
        "methods that need a model explain one of trees that learnt Q. Exact: 0 of unique information, "
        "and of marginal information I(Q; X₂)/I(Q; X₁).",
        _chain_shares(chains),
        "### The household",
        f"{homes[0]['rows']:,} rows that 200 trees of depth 4 have not seen (they learnt as many others"
        + (f"; R² {np.mean([home['fit'] for home in homes]):.3f}" if homes[0]["fit"] else "")
        + f"), {len(homes)} households. {house.OUTPUT}; E standard normal, [·] 1 where it holds, (·)⁺ "
        "at least 0.",
        table(["feature", "is"], [[name, what] for name, what in house.EQUATIONS.items()], left=2),
        f"Methods: {ABOUT}",
        "Importances: C as it is, of all others the share of the sum over features in %, mean ± "
        "standard deviation over households. Φ is that of the first; a feature without one is not "
        "ranked by C.",
        _importances(homes),
        _published(homes),
        "### Near-duplicates",
        f"A copy ρz + √(1 - ρ²)E of each of {_listed([f'*{name}*' for name in house.COPIED])} is added "
        "(z the feature in standard form), the model learns anew. Original | copy: the credit of each "
        "in % of what the feature had before, the three features together, mean ± standard deviation "
        "over households. 100 | 0 leaves the copy without credit, 100 | 100 counts it twice, 50 | 50 "
        "divides, 0 | 0 says that neither is unique. *C by knn*: nearest neighbours, with the same "
        "neighbourhoods.",
        _copies(homes),
        "### How steady the rankings are",
        "Kendall's τ and Jaccard's overlap of the first eight between any two households (new rows, a "
        "new model), and τ between the rankings of the 20 features without and with copies beside "
        "them, in the same household; mean ± standard deviation.",
        _steadiness(homes),
        "### Light samples",
        f"MCIR-M on a share of {light['rows']:,} rows beside all of them, the energy as output, "
        f"{light['repetitions']} repetitions; *anew*: screening and Auto-Φ on the light sample too; "
        "*kept*: the neighbourhoods of the full sample. C: among features that both rank. Mean ± "
        "standard deviation.",
        _light(light),
        _beside(homes, light),
    ]
    if failed:
        parts.append(f"MI, permutation, TreeSHAP and SAGE: {failed}")
    return "\n\n".join(parts)


def by_kind(results: dict[str, Any]) -> tuple[list[Any], list[Any], Any]:
    """Return the chains, the households and the light samples."""
    chains = next(result["chains"] for result in results.values() if "chains" in result)
    homes = [result for result in results.values() if "base" in result]
    return chains, homes, next(result for result in results.values() if "fractions" in result)


def _listed(items: list[str]) -> str:
    return ", ".join(items[:-1]) + " and " + items[-1]


def _chain(chains: list[Any]) -> str:
    lines = []
    for one in chains:
        cells = [f"{one['alpha']:g}"]
        for i in range(3):
            cells += [
                f"{abs(one['exact'][i]):.4f}",
                f"{one['mean'][i]:.4f} ± {one['spread'][i]:.4f}",
                f"{100 * one['held'][i]:.0f} %",
            ]
        lines.append(cells)
    head = ["α"]
    for i in "₁₂₃":
        head += [f"C{i}", f"C{i} found", "held"]
    return table(head, lines)


def _names(entries: dict[str, Any]) -> list[str]:
    return [name for name in (*MODEL_FREE, *OF_MODEL) if name in entries]


def _chain_shares(chains: list[Any]) -> str:
    names = _names(chains[0]["copy"])
    lines = []
    for one in chains:
        own, other = one["marginal"]
        cells = [f"{one['alpha']:g}", f"{other / own:.3f}"]
        for name in names:
            # At α = 1 MCIR-M finds nothing unique in either, and a share of nothing is none.
            nothing = name.startswith("MCIR") and one["exact"][0] < 1e-9
            cells.append("0 of 0" if nothing else f"{np.mean(one['copy'][name]):.3f}")
        lines.append(cells)
    return table(["α", "marginal, exact", *names], lines)


def _shares(home: dict[str, Any], name: str) -> Any:
    values = np.array([np.nan if v is None else v for v in home["base"][name]])
    return values if name == "MCIR-M, C" else 100 * values / values.sum()


def _importances(homes: list[Any]) -> str:
    names = _names(homes[0]["base"])
    shares = {name: np.array([_shares(home, name) for home in homes]) for name in names}
    last = names[-1] if names[-1] in OF_MODEL else names[0]
    order = np.argsort(-shares[last].mean(axis=0), kind="stable")
    lines = []
    for i in order:
        near = homes[0]["neighbourhoods"][i]
        cells = [house.NAMES[i], ", ".join(near) or "none"]
        for name in names:
            values = shares[name][:, i]
            values = values[np.isfinite(values)]
            form = ".3f" if name == "MCIR-M, C" else ".1f"
            ranked = values.size > len(homes) / 2
            cells.append(f"{values.mean():{form}} ± {values.std():{form}}" if ranked else "")
        lines.append(cells)
    return table(["feature", "Φ", *names], lines, left=2)


def _published(homes: list[Any]) -> str:
    """Say how far the orders of the authors' public run are those found here."""
    parts = []
    for theirs, ours in (("PCIR", "PCIR"), ("MCIR", "MCIR-M, U"), ("MCIR", "MCIR-M, C")):
        places = np.array([-house.PUBLISHED[theirs].index(name) for name in house.NAMES])
        scores = [
            np.array([np.nan if v is None else v for v in home["base"][ours]]) for home in homes
        ]
        taus = [kendall_tau(places.astype(float), one) for one in scores]
        parts.append(f"{_both([t for t in taus if t is not None])} for {ours}")
    return (
        "The authors' public notebook printed the order of the features by PCIR and by MCIR for one run "
        "(800 of 4,000 rows, the outputs of a forest that learnt them, up to six neighbours for "
        f"every feature). Kendall's τ with the orders here, over households: {_listed(parts)}. PCIR, a "
        "formula of means and variances, is the same in both; MCIR's order is not: there features get "
        "neighbours that no screen has let through, U is a correlation of ridge residuals ranked anew, "
        "and J has a ridge of its own, so that J = H + U does not hold."
    )


def _credits(homes: list[Any], rho: str, name: str, who: str) -> Any:
    """Return what originals or copies get, in % of what the features had before, by household."""
    entries = [home["rho"][rho][name] for home in homes]
    return np.array([100 * np.sum(entry[who]) / np.sum(entry["before"]) for entry in entries])


def credited(homes: list[Any], rho: str, name: str, who: str) -> float:
    """Return what originals or copies get, in % of what the features had before."""
    return float(_credits(homes, rho, name, who).mean())


def _copies(homes: list[Any]) -> str:
    rhos = list(homes[0]["rho"])
    lines = []
    for name in [BY_DISTANCE, *_names(homes[0]["rho"][rhos[0]])]:
        cells = [name]
        for rho in rhos:
            found = [_credits(homes, rho, name, who) for who in ("original", "copy")]
            # A bar ends a cell.
            cells.append(" \\| ".join(f"{one.mean():.0f} ± {one.std(ddof=1):.0f}" for one in found))
        lines.append(cells)
    return table(["method", *(f"ρ = {rho}" for rho in rhos)], lines)


def between(homes: list[Any], name: str) -> tuple[list[float], list[float]]:
    """Return τ and the heads' overlap of every two households."""
    scores = [np.array([np.nan if v is None else v for v in home["base"][name]]) for home in homes]
    pairs = [(a, b) for k, a in enumerate(scores) for b in scores[:k]]
    taus = [kendall_tau(a, b) for a, b in pairs]
    heads = [jaccard_at_k(a, b, 8) for a, b in pairs]
    return [t for t in taus if t is not None], [h for h in heads if h is not None]


def _both(values: list[float]) -> str:
    return f"{np.mean(values):.2f} ± {np.std(values):.2f}" if values else ""


def _beside_copies(homes: list[Any], rho: str, name: str) -> list[float]:
    taus = [home["rho"][rho][name]["tau"] for home in homes]
    return [tau for tau in taus if tau is not None]


def _steadiness(homes: list[Any]) -> str:
    rhos = list(homes[0]["rho"])
    lines = []
    for name in _names(homes[0]["base"]):
        taus, heads = between(homes, name)
        cells = [name, _both(taus), _both(heads)]
        cells += [_both(_beside_copies(homes, rho, name)) for rho in rhos]
        lines.append(cells)
    head = ["method", "τ between households", "first eight", *(f"τ beside ρ = {r}" for r in rhos)]
    return table(head, lines)


def _light(light: dict[str, Any]) -> str:
    names = {
        "tau": "τ",
        "head": "first eight",
    }
    columns = [
        (way, what, measure)
        for way in ("anew", "kept")
        for what in "CU"
        for measure in ("tau", "head")
    ]
    lines = []
    for fraction, entries in light["fractions"].items():
        cells = [f"{100 * float(fraction):.0f} %"]
        for column in columns:
            entry = entries.get(", ".join(column))
            cells.append("" if entry is None else f"{entry[0]:.2f} ± {entry[1]:.2f}")
        lines.append(cells)
    head = ["rows", *(f"{way}, {what}: {names[measure]}" for way, what, measure in columns)]
    return table(head, lines)


def _beside(homes: list[Any], light: dict[str, Any]) -> str:
    """Say of each direction that the paper's abstract names whether it is found here."""
    rhos = list(homes[0]["rho"])
    near, exact = _NEAR if _NEAR in rhos else rhos[0], rhos[-1]
    names = _names(homes[0]["base"])
    by = ("MCIR-M, C", BY_DISTANCE)
    collapse, collapsed = (
        [credited(homes, rho, name, "original") for rho in (near, exact)] for name in by
    )
    most = [max(credited(homes, rho, name, "copy") for rho in rhos) for name in by]
    parts = [
        "**Beside the paper**, of which abstract and code are public. *The score collapses to zero when "
        "a feature is redundant*: found, with the exact values above, and on the household C of the "
        f"original falls to {collapse[0]:.0f} % with ρ = {near} and {collapse[1]:.0f} % with ρ = "
        f"{exact} under the copula, to {collapsed[0]:.0f} % and {collapsed[1]:.0f} % by nearest "
        f"neighbours; the copy gets at most {most[0]:.0f} % under the copula and {most[1]:.0f} % by "
        "nearest neighbours, with any ρ. What the abstract leaves out: the original collapses with its "
        "copy, so that C alone no longer tells that the two matter; J and the marginal do.",
    ]
    others = [name for name in names if not name.startswith("MCIR")]
    credit = {
        name: (
            credited(homes, near, name, "original"),
            credited(homes, near, name, "copy"),
        )
        for name in others
    }
    twice = [name for name, (own, copy) in credit.items() if own > 80 and copy > 80]
    divided = [name for name, (own, copy) in credit.items() if copy > 10 and name not in twice]
    kept = [name for name, (own, copy) in credit.items() if copy <= 10]
    text = f"*Others distribute importance across redundant features*: with ρ = {near} the copy is "
    text += "; ".join(
        f"{what} by {_listed(group) if len(group) > 1 else group[0]}"
        for group, what in (
            (twice, "credited as fully as the original, which counts it twice"),
            (divided, "credited in part"),
            (kept, "left with a tenth or less"),
        )
        if group
    )
    text += ". An exact copy gets nothing from trees that take the first of equal columns."
    parts.append(
        text if any(name in OF_MODEL for name in others) else text.rpartition(". ")[0] + "."
    )
    tau = {name: float(np.mean(between(homes, name)[0])) for name in names}
    beside = {name: float(np.mean(_beside_copies(homes, near, name))) for name in names}
    own = max(("MCIR-M, U", "MCIR-M, C"), key=tau.__getitem__)
    better = [name for name in others if tau[name] > tau[own]]
    agree = "found" if not better else "not found" if len(better) == len(others) else "mixed"
    lead = max(others, key=beside.__getitem__)
    parts.append(
        f"*More stable rankings than others*: {agree} between households: τ is {tau['MCIR-M, U']:.2f} "
        f"for U and {tau['MCIR-M, C']:.2f} for C"
        + (
            f", higher for {', '.join(f'{name} ({tau[name]:.2f})' for name in better)}."
            if better
            else ", lower for all others."
        )
        + " Where unique information is small its order is chance, and neighbourhoods are chosen anew "
        f"in each. Beside near-duplicates (ρ = {near}) the ranking of the others' kind is steadiest for "
        f"{lead} ({beside[lead]:.2f}), and τ is {beside['MCIR-M, U']:.2f} for U and "
        f"{beside['MCIR-M, C']:.2f} for C: a method that looks at one feature at a time is hardly moved "
        "by copies, and one that asks what is unique must be. A later abstract (arXiv 2610.01641) "
        "calls the comparisons mixed."
    )
    quarter = light["fractions"].get("0.25", next(iter(light["fractions"].values())))
    share = quarter["kept, U, head"][0]
    within = 2 * share / (1 + share)
    parts.append(
        "*Light samples keep more than 95 % of the top features*: with a quarter of the rows, the "
        f"neighbourhoods kept and U, the first eight overlap by {share:.2f} in Jaccard's measure, about "
        f"{100 * within:.0f} % of the "
        "eight: " + ("found." if within >= 0.95 else "not reached here.")
    )
    return " ".join(parts)


def figures(results: dict[str, Any]) -> list[Figure]:
    """Return the exact and the found score over α, and the credit of originals and copies over ρ."""
    chains, homes, _ = by_kind(results)
    alphas = [one["alpha"] for one in chains]
    rhos = list(homes[0]["rho"])
    names = _names(homes[0]["rho"][rhos[0]])
    score = Panel(
        "Q = X₁ + ½X₃ + ε",
        "correlation of X₁ and X₂",
        "C",
        {
            "C₁, exact": (alphas, [one["exact"][0] for one in chains]),
            "C₁, found": (alphas, [one["mean"][0] for one in chains]),
            "C₂, found": (alphas, [one["mean"][1] for one in chains]),
        },
    )
    credit = [
        Panel(
            f"household: credit of the {who}",
            "correlation of original and copy",
            "% of the credit before",
            {
                name: ([float(rho) for rho in rhos], [credited(homes, r, name, who) for r in rhos])
                for name in names
            },
        )
        for who in ("original", "copy")
    ]
    alt = "Scores over the correlation of a feature and its copy; credit of originals and of copies"
    return [Figure("mcir-redundancy", alt, [score, *credit])]
