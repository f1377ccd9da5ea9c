#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: scripts/plot_curves.py RESULT.json PICTURE.svg

Draws bytes against time for Farandole and every peer, both logarithmic, from what tests/bench/allreduce_curve.sh has
measured; a panel for each number of buffer pairs (1: warm caches). Of several MPIs that have started Farandole, the
first one's figures are drawn. Needs matplotlib (Debian: python3-matplotlib).
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

OURS = {"user": "#0072b2", "window": "#d55e00"}  # distinguishable for colour-blind readers
PEERS = ["#5f5f5f", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5195"]
MARKERS = "sDv^PX"


def bytes_text(count, _=None):
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count:g} B"


def time_text(microseconds, _=None):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:g} {unit}"
    return f"{microseconds:g} µs"


def drawn_curves(result):
    first = next(curve["started_by"] for curve in result["curves"] if curve["kind"] == "farandole")
    peers = [curve for curve in result["curves"] if curve["kind"] == "peer"]
    return peers, [curve for curve in result["curves"] if curve["kind"] == "farandole" and curve["started_by"] == first]


def draw(axes, result, pairs):
    peers, ours = drawn_curves(result)
    names = list(dict.fromkeys(curve["name"] for curve in peers))
    for curve in peers + ours:
        if curve["buffer_pairs"] != pairs:
            continue
        x = [point["bytes"] for point in curve["points"]]
        y = [point["p50_us"] for point in curve["points"]]
        if curve["kind"] == "farandole":
            axes.plot(x, y, color=OURS[curve["memory"]], marker="o", markersize=4.5, linewidth=2.4, label=curve["name"])
        else:
            index = names.index(curve["name"])
            axes.plot(x, y, color=PEERS[index % len(PEERS)], marker=MARKERS[index % len(MARKERS)], markersize=3.5,
                      linewidth=1.2, label=curve["name"])


def dress(axes, result, pairs):
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({point["bytes"] for curve in result["curves"] for point in curve["points"]})
    low, high = sizes[0].bit_length() - 1, sizes[-1].bit_length() - 1
    axes.xaxis.set_major_locator(FixedLocator([2**k for k in range(low - low % 2, high + 1) if (k - 2) % 4 == 0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(bytes_text))
    axes.yaxis.set_major_formatter(FuncFormatter(time_text))
    axes.grid(color="#d8d8d8", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("bytes per rank")
    title = "warm caches" if pairs == 1 else f"{pairs} pairs of buffers in turn"
    axes.set_title(title, fontsize=9, loc="left", color="#404040")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "farandole"})  # the same picture for the same figures
    pairs = sorted({curve["buffer_pairs"] for curve in result["curves"]})
    figure, panels = plt.subplots(1, len(pairs), figsize=(7.2 if len(pairs) == 1 else 11.5, 5), sharey=True, squeeze=False,
                                  facecolor="white")
    for axes, count in zip(panels[0], pairs):
        draw(axes, result, count)
        dress(axes, result, count)
    panels[0][0].set_ylabel("time of one call, median")
    handles, labels = panels[0][0].get_legend_handles_labels()
    # Farandole comes first in the legend. Its curves are drawn last, on top of the peers'.
    order = sorted(range(len(labels)), key=lambda i: not labels[i].startswith("Farandole"))
    columns = 3 if len(pairs) == 1 else 6
    figure.legend([handles[i] for i in order], [labels[i] for i in order], frameon=False, loc="upper left", ncol=columns,
                  bbox_to_anchor=(0.0, 0.95), columnspacing=1.6)
    lines = -(-len(order) // columns)
    figure.suptitle(f"{result['collective'].capitalize()}, {result['ranks']} ranks on {result['machine']['cores']} cores, "
                    f"{result['dtype']} {result['op']}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.01, 0.008, f"{result['machine']['processor']}, {result['date']}; "
                f"medians of {result['rounds']} round{'' if result['rounds'] == 1 else 's'}",
                fontsize=7.5, color="#606060")
    figure.tight_layout(rect=(0, 0.02, 1, 0.99 - 0.04 * lines))
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
