"""matplotlib: draws the figures that a JSON file describes, as SVG that is the same every time."""

import json
import math
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams.update(
    {
        "svg.hashsalt": "attributary",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
)
from matplotlib import pyplot as plt  # noqa: E402 - after the backend is chosen

MARKERS = "osD^vPX*<>"


def lines(axes, panel):
    for k, (label, (x, y)) in enumerate(panel["series"].items()):
        values = [math.nan if value is None else value for value in y]
        # Colours and markers begin again after ten.
        style = {"marker": MARKERS[k % 10], "linestyle": ("-", "--", ":")[k // 10 % 3]}
        axes.plot(x, values, **style, markersize=3, linewidth=1.2, label=label)


def bars(axes, panel):
    series = panel["series"]
    width = 0.8 / len(series)
    names = next(iter(series.values()))[0]
    for k, (label, (_, y)) in enumerate(series.items()):
        values = [math.nan if value is None else value for value in y]
        places = [i + (k + 0.5) * width - 0.4 for i in range(len(names))]
        axes.bar(places, values, width, label=label, hatch=("", "///", "...")[k // 10 % 3])
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")


def draw(figure, folder):
    panels = figure["panels"]
    picture, grid = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels) + 0.6, 3.4), squeeze=False, layout="constrained"
    )
    for axes, panel in zip(grid[0], panels, strict=True):
        (bars if panel["kind"] == "bars" else lines)(axes, panel)
        axes.set(title=panel["title"], xlabel=panel["x"], ylabel=panel["y"])
        if panel["log_x"]:
            axes.set_xscale("log")
        if panel["log_y"]:
            axes.set_yscale("log")
    handles, labels = grid[0][-1].get_legend_handles_labels()
    picture.legend(
        handles,
        labels,
        fontsize=7,
        loc="outside lower center",
        ncols=min(6, 3 * len(panels), len(labels)),
    )
    picture.savefig(folder / f"{figure['name']}.svg", metadata={"Date": None})
    plt.close(picture)
    return figure["name"]


asked, folder = Path(sys.argv[1]), Path(sys.argv[2])
figures = json.loads(asked.read_text(encoding="utf-8"))
print(json.dumps([draw(figure, folder) for figure in figures]))
