#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: compare_builds.py [OPTION...] BEFORE AFTER [ARGUMENT of farandole-bench...]

Says which of a fixed list of cases are slower in the build AFTER than in the build BEFORE: collectives, the engine,
TensorFlow, Keras, the trainer. BEFORE and AFTER are build directories. Each round runs BEFORE, BEFORE once more, and
AFTER, in an order that changes from round to round, so that the spread of one build against itself is known. A case is
slower if the ratio of its medians is beyond both that spread and --allow. Programs with a slower case are run for as
many rounds again before the verdict. With arguments of farandole-bench, that one program is compared and no other.

Every job is started without MPI and needs an idle machine. Each rank is bound to a core; a program with one rank gets
all cores. The whole list takes about a minute a round. If this Python has no TensorFlow, programs that need it are
skipped, with a note in the output.

Exit status: 0 nothing is slower, 1 something is, 2 wrong arguments, or a program that failed.
"""
import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import random
import re
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, Tuple

import compare_commands

BENCH = pathlib.Path(__file__).resolve().parent
LIMIT_SECONDS = 300  # of one job


class JobFailed(Exception):
    """A job that ended with an error, or not at all; the text says which."""


@dataclasses.dataclass
class Run:
    """Results of one job: rank 0's standard output, the file that the program wrote, and the duration."""

    output: str
    file: pathlib.Path
    seconds: float


def bench_figures(run: Run) -> Dict[str, float]:
    rows = json.loads(run.file.read_text())
    return {f"{row['collective']} {row['bytes']} B": row["p50_us"] * 1e-6 for row in rows}


def printed_figures(run: Run) -> Dict[str, float]:
    return dict(compare_commands.figures(run.output, []))


def training_step(run: Run) -> Dict[str, float]:
    rows = [json.loads(line) for line in run.file.read_text().splitlines()]
    return {"training step": statistics.median(row["seconds"] for row in rows if "training_step" in row)}


def whole_job(run: Run) -> Dict[str, float]:
    return {"from start to end": run.seconds}


@dataclasses.dataclass
class Program:
    """A job, and how its figures are read. {build}, {file} and {python} in `command` are replaced."""

    name: str
    command: List[str]
    figures: Callable[[Run], Dict[str, float]]  # what was measured: seconds
    ranks: int = 2
    over_tcp: bool = False  # each rank a host of its own
    needs_tensorflow: bool = False


def bench(name, *arguments, ranks=2, **more):
    place = [] if "--place" in arguments else ["--place", "out"]
    command = ["{build}/bin/farandole-bench", *arguments, *place, "--no-check", "--json", "{file}"]
    return Program(name, command, bench_figures, ranks, **more)


def script(name, file, *arguments, needs_tensorflow=True):
    command = ["{python}", str(BENCH / file), *arguments]
    return Program(name, command, printed_figures, needs_tensorflow=needs_tensorflow)


def trainer(name, *arguments, ranks=2):
    common = ["--threads", "1", "--evaluate-every", "0", "--quiet", "--log-steps", "--json", "{file}"]
    return Program(name, ["{build}/bin/farandole-train", *arguments, *common], training_step, ranks)


THREE_SIZES = ("--min-bytes", "4", "--max-bytes", "1MiB", "--factor", "512")
MOVEMENT = "broadcast,reduce,allgather,reduce_scatter,gather,scatter,alltoall"
PROGRAMS = [
    bench("processes", "--max-bytes", "64MiB", "--factor", "64"),
    bench("windows", "--memory", "window", "--min-bytes", "1KiB", "--max-bytes", "64MiB", "--factor", "256"),
    bench("collectives", "-c", MOVEMENT, "--min-bytes", "1KiB", "--max-bytes", "1MiB", "--factor", "1024"),
    bench("synchronisation", "-c", "barrier"),
    bench("f16 average", "-d", "f16", "-o", "average", "--min-bytes", "1MiB", "--max-bytes", "1MiB"),
    bench("4 ranks", *THREE_SIZES, ranks=4),
    bench("threads", "--replicas", "2", *THREE_SIZES, ranks=1),
    bench("TCP", *THREE_SIZES, over_tcp=True),
    script("engine", "numpy_allreduce.py", needs_tensorflow=False),
    script("TensorFlow", "tensorflow_allreduce.py"),
    script("Keras", "keras_small_step.py", "--epochs", "3"),
    trainer("cnn", "--model", "cnn", "--max-steps", "60"),
    trainer("mlp, threads", "--model", "mlp", "--max-steps", "800", "--replicas", "2", ranks=1),
    trainer("cnn_bn", "--model", "cnn_bn", "--max-steps", "40"),
    trainer("resnet18", "--model", "resnet18", "--data", "cifar10", "--synthetic", "--samples", "64", "--global-batch", "8",
            "--max-steps", "8"),
    trainer("gpt", "--model", "gpt", "--data", "text", "--synthetic", "--global-batch", "16", "--max-steps", "20"),
    Program("a job", ["{build}/bin/farandole-bench", "-c", "barrier", "-n", "1"], whole_job),
]


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def variables_of_ranks(program: Program) -> List[Dict[str, str]]:
    """The environment of each rank of a new job."""
    if program.over_tcp:
        common = {
            "WORLD_SIZE": str(program.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "FARANDOLE_JOB_KEY": secrets.token_hex(32),
        }
        return [{**common, "RANK": str(rank), "FARANDOLE_HOST_ID": f"host{rank}"} for rank in range(program.ranks)]
    common = {"FARANDOLE_SIZE": str(program.ranks), "FARANDOLE_JOB": f"compare-{secrets.token_hex(4)}"}
    return [{**common, "FARANDOLE_RANK": str(rank)} for rank in range(program.ranks)]


def run_job(program: Program, build: pathlib.Path, file: pathlib.Path) -> Dict[str, float]:
    """{case: seconds} of one job of the program, as that build has it."""
    words = {"build": str(build), "file": str(file), "python": sys.executable}
    command = [word.format(**words) for word in program.command]
    cores = sorted(os.sched_getaffinity(0))
    file.unlink(missing_ok=True)
    begin = time.perf_counter()
    processes = []
    try:
        for rank, variables in enumerate(variables_of_ranks(program)):
            # Far apart: neighbours may be threads of one core. One process with several replicas has all cores.
            core = str(cores[rank * len(cores) // program.ranks]) if program.ranks > 1 else ",".join(map(str, cores))
            processes.append(
                subprocess.Popen(
                    ["taskset", "-c", core, *command],
                    env={**os.environ, **variables, "PYTHONPATH": str(build / "python")},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outputs = [process.communicate(timeout=LIMIT_SECONDS)[0] for process in processes]
    except subprocess.TimeoutExpired:
        raise JobFailed(f"{program.name} of {build} did not end within {LIMIT_SECONDS} s: {' '.join(command)}") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    for rank, process in enumerate(processes):
        if process.returncode != 0:
            raise JobFailed(f"{program.name} of {build}: rank {rank} ended with {process.returncode}:\n{outputs[rank]}")
    return program.figures(Run(outputs[0], file, time.perf_counter() - begin))


@dataclasses.dataclass
class Verdict:
    before: float  # median, seconds
    after: float
    itself: float  # ratio of BEFORE's second runs to its first
    spread: float  # at least 1: rarely exceeded by one build against itself
    ratio: float  # AFTER to BEFORE
    word: str  # "slower", "faster", or nothing


def judge(before: List[float], again: List[float], after: List[float], allow: float) -> Verdict:
    """Judges one case by its samples, one per round in each list; `allow` is a share such as 0.03.

    The spread comes from drawing groups of as many samples as AFTER and BEFORE have out of all that BEFORE has: their
    ratios are those that the machine makes by itself.
    """
    of_before = before + again
    ratio = statistics.median(after) / statistics.median(of_before)
    itself = statistics.median(again) / statistics.median(before)
    draw = random.Random(1)
    drawn = sorted(
        statistics.median(draw.choices(of_before, k=len(after))) / statistics.median(draw.choices(of_before, k=len(of_before)))
        for _ in range(1000)
    )
    spread = max(drawn[-5], 1 / drawn[4], itself, 1 / itself)
    limit = max(spread, 1 + allow)
    word = "slower" if ratio > limit else "faster" if ratio < 1 / limit else ""
    return Verdict(statistics.median(of_before), statistics.median(after), itself, spread, ratio, word)


Samples = Dict[Tuple[str, str], Tuple[List[float], List[float], List[float]]]  # (program, case): before, again, after


def measure(programs: List[Program], builds, rounds: int, samples: Samples):
    """Adds `rounds` rounds of each program to `samples`; `builds` are BEFORE, BEFORE and AFTER."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            for program in programs:
                print(f"round {number + 1} of {rounds}: {program.name}", file=sys.stderr, flush=True)
                for place in range(3):
                    which = (place + number) % 3
                    for case, seconds in run_job(program, builds[which], pathlib.Path(directory) / "figures").items():
                        samples.setdefault((program.name, case), ([], [], []))[which].append(seconds)


def verdicts_of(samples: Samples, allow: float) -> Dict[Tuple[str, str], Verdict]:
    return {case: judge(*lists, allow) for case, lists in samples.items() if all(lists)}


def readable(seconds: float) -> str:
    return f"{seconds * 1e6:.3f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def print_table(verdicts: Dict[Tuple[str, str], Verdict]):
    print(f"{'case':46} {'before':>12} {'after':>12} {'ratio':>6} {'spread':>6} {'itself':>6}")
    for (program, case), verdict in verdicts.items():
        print(
            f"{program + ': ' + case:46} {readable(verdict.before):>12} {readable(verdict.after):>12} "
            f"{verdict.ratio:6.2f} {verdict.spread:6.2f} {verdict.itself:6.2f}  {verdict.word}"
        )


def chosen_programs(options, arguments) -> List[Program]:
    if arguments:
        return [bench("farandole-bench", *arguments, ranks=options.ranks)]
    programs = [program for program in PROGRAMS if re.search(options.only, program.name)]
    left = [program for program in programs if program.needs_tensorflow]
    if left and importlib.util.find_spec("tensorflow") is None:
        print(f"passed over, as {sys.executable} has no TensorFlow: {', '.join(program.name for program in left)}")
        return [program for program in programs if not program.needs_tensorflow]
    return programs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[2], formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=__doc__.partition("\n")[0].partition(" ")[2],
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", metavar="REGEX", help="programs whose name matches: "
                        + ", ".join(program.name for program in PROGRAMS))
    parser.add_argument("--ranks", type=int, default=2, help="with arguments of farandole-bench")
    parser.add_argument("--allow", type=float, default=3, metavar="PERCENT", help="by how much a case may be slower (3)")
    parser.add_argument("--json", type=pathlib.Path, help="file for all samples, in seconds")
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    options, arguments = parser.parse_known_args()
    for build in (options.before, options.after):
        if not (build / "bin" / "farandole-bench").exists():
            parser.error(f"{build} is no build directory: it has no bin/farandole-bench")
    programs = chosen_programs(options, arguments)
    if options.rounds < 3:
        parser.error("--rounds must be at least 3: fewer show no spread")
    if not programs:
        parser.error(f"no program matches --only {options.only}; there are {', '.join(each.name for each in PROGRAMS)}")

    builds = [options.before.resolve(), options.before.resolve(), options.after.resolve()]
    samples: Samples = {}
    try:
        measure(programs, builds, options.rounds, samples)
        slow = {program for (program, _), verdict in verdicts_of(samples, options.allow / 100).items() if verdict.word == "slower"}
        if slow:
            measure([program for program in programs if program.name in slow], builds, options.rounds, samples)
    except JobFailed as failure:
        print(f"compare_builds.py: {failure}", file=sys.stderr)
        sys.exit(2)
    verdicts = verdicts_of(samples, options.allow / 100)
    print_table(verdicts)
    if options.json:
        options.json.write_text(json.dumps({": ".join(case): lists for case, lists in samples.items()}, indent=1))
    slower = [": ".join(case) for case, verdict in verdicts.items() if verdict.word == "slower"]
    print(f"slower: {', '.join(slower)}" if slower else f"no case of {len(verdicts)} is slower")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
