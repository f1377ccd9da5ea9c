#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: compare_commands.py [--rounds N] [--json FILE] NAME=COMMAND...

Runs commands that print figures, one after the other, round after round, and prints the medians over the rounds as a
table, with the ratio to the first command. A figure is a line that ends in a number and a unit (us, ms, s), with what
was measured before it: '64 B  12.3 us', 'ResNet-50 gradients 82 ms'. --alias FROM=TO renames what was measured, so
that different programs' lines meet; a FROM that is the end of a line's text is enough.
"""
import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
FIGURE = re.compile(r"^(?P<what>\S.*?)\s+(?P<value>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)$")


def figures(text, aliases):
    """(what, seconds) of each line that holds a figure."""
    for line in text.splitlines():
        match = FIGURE.match(line.strip())
        if match:
            what = next((to for end, to in aliases if match["what"].endswith(end)), match["what"])
            yield " ".join(what.split()), float(match["value"]) * SECONDS[match["unit"]]


def pair(text):
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"'{text}' must be NAME=VALUE")
    return name, value


def run(command):
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"compare_commands.py: '{command}' ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def print_table(medians, names):
    first = names[0]
    print("| | " + " | ".join(names) + " |\n| --- |" + " --- |" * len(names))
    for what in medians[first]:
        cells = []
        for name in names:
            seconds = medians[name].get(what)
            ratio = "" if name == first or seconds is None else f" ({seconds / medians[first][what]:.1f} ×)"
            cells.append("" if seconds is None else f"{seconds * 1e6:.1f} µs{ratio}")
        print(f"| {what} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alias", type=pair, action="append", default=[])
    parser.add_argument("--json", help="file for all figures")
    parser.add_argument("commands", type=pair, nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_args()
    samples = {name: {} for name, _ in options.commands}
    for round_number in range(1, options.rounds + 1):
        for name, command in options.commands:
            print(f"round {round_number}: {name}", file=sys.stderr, flush=True)
            for what, seconds in figures(run(command), options.alias):
                samples[name].setdefault(what, []).append(seconds)
    medians = {name: {what: statistics.median(all_) for what, all_ in of.items()} for name, of in samples.items()}
    print_table(medians, [name for name, _ in options.commands])
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"seconds": samples}, file, indent=1)


if __name__ == "__main__":
    main()
