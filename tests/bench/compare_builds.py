#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: compare_builds.py [--rounds N] [--ranks N] BEFORE AFTER [ARGUMENT OF farandole-bench...]

Runs farandole-bench of two builds (directories with bin/farandole-bench), alternating, as a job without MPI of two
ranks (or N), each bound to a core, which they share where there are more ranks than cores, and prints for each case the median over the rounds of each run's median, and the ratio of AFTER to
BEFORE. Each run falls into one of the machine's modes, so it takes some 20 rounds to compare them.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def start(build, rank, ranks, job, arguments, core):
    environment = dict(os.environ, FARANDOLE_RANK=str(rank), FARANDOLE_SIZE=str(ranks), FARANDOLE_JOB=job)
    command = ["taskset", "-c", str(core), str(build / "bin" / "farandole-bench"), *arguments]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def measure(build, ranks, arguments, output):
    """{case: median in microseconds} of one job."""
    cores = sorted(os.sched_getaffinity(0))
    job = f"compare-{os.getpid()}"
    # Far apart: neighbours may be threads of one core.
    processes = [
        start(build, rank, ranks, job, [*arguments, "--json", str(output)], cores[rank * len(cores) // ranks])
        for rank in range(ranks)
    ]
    for process in processes:
        problem = process.communicate(timeout=300)[1]
        if process.returncode != 0:
            sys.exit(f"compare_builds.py: {build}: farandole-bench ended with {process.returncode}:\n{problem}")
    rows = json.loads(output.read_text())
    return {f"{row['collective']} {row['bytes']} B {row['memory']}": row["p50_us"] for row in rows}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("\n")[0].partition(" ")[2])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    options, arguments = parser.parse_known_args()
    if "--place" not in arguments:
        arguments += ["--place", "out"]
    found = {build: {} for build in (options.before, options.after)}
    with tempfile.TemporaryDirectory() as directory:
        for round_number in range(options.rounds):
            for build in sorted(found, reverse=round_number % 2 == 1):
                for case, value in measure(build, options.ranks, arguments, pathlib.Path(directory) / "out").items():
                    found[build].setdefault(case, []).append(value)
    for case, values in found[options.before].items():
        before, after = statistics.median(values), statistics.median(found[options.after][case])
        print(f"{case:32} {before:12.3f} us {after:12.3f} us  {after / before:5.2f}")


if __name__ == "__main__":
    main()
