#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: collect_curves.py DIRECTORY RESULT.json

Joins what allreduce_curve.sh has measured: bench.<mpi>.<pairs>.<memory>.<round>.json (of farandole-bench beside an MPI),
alone.<memory>.<round>.json (of farandole-bench without a peer) and peer.<index>.<round>.txt (a line '# name', then lines
of 'bytes p50_us p99_us'). Prints a table of the medians.
"""
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys

MEMORY = {"user": "Farandole, ordinary memory", "window": "Farandole, windows"}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def short(number):
    return float(f"{number:.5g}")


class Curve:
    """The samples of one program: for each size and round its (p50, p99)."""

    def __init__(self, **description):
        self.description = description
        self.samples = {}

    def add(self, size, round_number, p50_us, p99_us):
        self.samples.setdefault(size, []).append((round_number, p50_us, p99_us))

    def median(self, size, column=1):
        return statistics.median(sample[column] for sample in self.samples[size])

    def of_round(self, size, round_number):
        return statistics.median(p50 for r, p50, _ in self.samples[size] if r == round_number)

    def as_json(self):
        return {**self.description,
                "points": [{"bytes": size, "p50_us": short(self.median(size)), "p99_us": short(self.median(size, 2)),
                            "p50_us_of_rounds": [short(p50) for _, p50, _ in self.samples[size]]}
                           for size in sorted(self.samples)]}


def read_bench(directory):
    """Curves of ours and of the MPIs, and the ratios between them that were measured in one process."""
    ours, mpis, ratios = {}, {}, {}
    for path in sorted(directory.glob("bench.*.json")):
        _, launcher, pairs, memory, round_number, _ = path.name.split(".")
        for entry in json.loads(path.read_text()):
            key = (int(launcher), int(pairs), memory)
            curve = ours.setdefault(key, Curve(name=MEMORY[memory], kind="farandole", memory=memory,
                                               buffer_pairs=int(pairs), ranks=entry["ranks"], started_by=entry["peer"]))
            curve.add(entry["bytes"], int(round_number), entry["p50_us"], entry["p99_us"])
            peer = mpis.setdefault(key[:2], Curve(name=entry["peer"], kind="peer", buffer_pairs=int(pairs)))
            peer.add(entry["bytes"], int(round_number), entry["peer_p50_us"], entry["peer_p99_us"])
            ratios.setdefault((entry["peer"], memory, int(pairs)), {}).setdefault(entry["bytes"], []).append(entry["ratio"])
    return [ours[key] for key in sorted(ours)], [mpis[key] for key in sorted(mpis)], ratios


def read_alone(directory):
    """Curves of ours without a peer in the same processes, which takes caches: what other programs compare with."""
    curves = {}
    for path in sorted(directory.glob("alone.*.json")):
        _, memory, round_number, _ = path.name.split(".")
        curve = curves.setdefault(memory, Curve(name=MEMORY[memory] + ", alone", kind="alone", memory=memory,
                                                buffer_pairs=1))
        for entry in json.loads(path.read_text()):
            curve.add(entry["bytes"], int(round_number), entry["p50_us"], entry["p99_us"])
    return [curves[memory] for memory in sorted(curves)]


def read_peers(directory):
    curves = {}
    for path in sorted(directory.glob("peer.*.txt")):
        _, index, round_number, _ = path.name.split(".")
        name, *lines = path.read_text().splitlines()
        curve = curves.setdefault(int(index), Curve(name=name[2:], kind="peer", buffer_pairs=1))
        for line in lines:
            fields = line.split()
            try:
                curve.add(int(fields[0]), int(round_number), float(fields[1]), float(fields[2]))
            except (IndexError, ValueError):
                continue  # a heading, or what else the program says
        if not curve.samples:
            sys.exit(f"collect_curves.py: {curve.description['name']} printed no line of 'bytes p50_us p99_us', but:\n"
                     + "\n".join(lines))
    return [curves[index] for index in sorted(curves)]


def add_ratios(ratios, alone, peers):
    """Other programs run in the same round, not in the same process."""
    for curve in alone:
        for peer in peers:
            found = ratios.setdefault((peer.description["name"], curve.description["memory"], 1), {})
            for size in sorted(set(curve.samples) & set(peer.samples)):
                rounds = sorted({r for r, _, _ in peer.samples[size]})
                found[size] = [peer.of_round(size, r) / curve.of_round(size, r) for r in rounds]


def print_table(title, columns):
    """`columns`: by heading, the text for each size; with the sizes that Farandole was measured with, the first column's."""
    print(f"\n{title}\n\n| bytes | " + " | ".join(columns) + " |\n| --- |" + " --- |" * len(columns))
    for size in sorted(next(iter(columns.values()))):
        print(f"| {size} | " + " | ".join(column.get(size, "") for column in columns.values()) + " |")


def print_tables(result):
    for pairs in sorted({curve["buffer_pairs"] for curve in result["curves"]}):
        times, ratios = {}, {}
        for curve in result["curves"]:
            heading = curve["name"] + (f" ({curve['started_by']})" if "started_by" in curve else "")
            if curve["buffer_pairs"] == pairs:
                times[heading] = {p["bytes"]: f"{p['p50_us']:.2f} ({p['p99_us']:.2f})" for p in curve["points"]}
        for ratio in result["ratios"]:
            if ratio["buffer_pairs"] == pairs:
                heading = f"{ratio['peer']} / {MEMORY[ratio['memory']]}"
                ratios[heading] = {p["bytes"]: f"{p['ratio']:.2f}" for p in ratio["points"]}
        buffers = "one pair of buffers" if pairs == 1 else f"{pairs} pairs of buffers in turn"
        print_table(f"Median µs (99th percentile), {buffers}", times)
        print_table(f"Times of peers / times of Farandole, {buffers}", ratios)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    ours, mpis, ratios = read_bench(directory)
    alone = read_alone(directory)
    others = read_peers(directory)
    add_ratios(ratios, alone, others)
    result = {
        "collective": "allreduce", "dtype": "f32", "op": "sum", "ranks": ours[0].description["ranks"],
        "rounds": max(r for r, _, _ in next(iter(ours[0].samples.values()))),
        "machine": {"processor": processor(), "cores": len(os.sched_getaffinity(0)),
                    "system": f"{platform.system()} {platform.release()}"},
        "date": datetime.date.today().isoformat(),
        "curves": [curve.as_json() for curve in ours + alone + mpis + others],
        "ratios": [{"peer": peer, "memory": memory, "buffer_pairs": pairs,
                    "points": [{"bytes": size, "ratio": short(statistics.median(values)),
                                "ratio_of_rounds": [short(value) for value in values]}
                               for size, values in sorted(sizes.items())]}
                   for (peer, memory, pairs), sizes in ratios.items()],
    }
    pathlib.Path(sys.argv[2]).write_text(json.dumps(result, indent=1) + "\n")
    print_tables(result)


if __name__ == "__main__":
    main()
