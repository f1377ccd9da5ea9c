#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mutants.py BUILD_DIRECTORY [NAME...]

Breaks the code that is shipped, by one mutant of mutant_table.py after another (or by those that are named), and runs the
test that must fail then, on the double of tests/support/host_device. Says of each mutant whether its test finds it, and ends
with 1 if one is not found or no longer applies, or if a test fails without a change. The build is Ninja's, by g++ or clang,
and stays as it is: what is compiled and linked anew lies in a temporary directory.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Dict, List, NamedTuple, Tuple

sys.dont_write_bytecode = True  # the sources stay as they are, too
from mutant_table import MUTANTS, Mutant, Test  # noqa: E402

SOURCE_DIRECTORY = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = "libfarandole.so"
# The shipping plug-in's objects, with some bytes in the place of kernels: the double finds kernels by their names.
PLUGIN = "tests/unit/cuda/plugins/libfarandole_cuda.so"
# What streams do when is drawn, and differs from run to run.
ATTEMPTS = 3
# Compilers, and tests whose ranks mostly wait, that run beside each other.
MOST_AT_A_TIME = 2
TEST_LIMIT_S = 60
# Ranks that wait for each other in a circle give up.
MUTANT_DEADLINE_S = 2
# A mutant runs once, for a short time, and may leave something unused.
MUTANT_FLAGS = "-O0 -g0 -w"
LINK_FLAGS = "-Wl,--strip-debug"
REASON = re.compile(r"fake device misuse: .*|watchdog: .*|^C\+\+ exception .*|^(?!unknown file).*: Failure$|.*Assertion .*",
                    re.MULTILINE)


class Problem(Exception):
    """Why there is no verdict."""


class Edge(NamedTuple):
    """How Ninja makes a file of the build."""
    output: str
    command: str
    source: str


class Outcome(NamedTuple):
    passes: bool
    reason: str
    output: str


def replaced(text: str, before: str, after: str) -> str:
    count = text.count(before)
    if count != 1:
        raise Problem(f"the text before {'is gone' if count == 0 else f'occurs {count} times'}: {before}")
    return text.replace(before, after)


def run_command(command: str, directory: pathlib.Path) -> None:
    environment = {**os.environ, "CCACHE_DISABLE": "1"}  # what is compiled here is not compiled again
    done = subprocess.run(command, shell=True, cwd=directory, env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Problem(f"{command}\n{done.stdout}")


class Build:
    """A build directory, which stays as it is, and what is made anew of its parts in `scratch`."""

    def __init__(self, directory: pathlib.Path, scratch: pathlib.Path) -> None:
        self.directory, self.scratch = directory, scratch
        cache = (directory / "CMakeCache.txt").read_text(encoding="utf-8")
        ninja = re.search(r"^CMAKE_MAKE_PROGRAM:\w+=(.*ninja.*)$", cache, re.MULTILINE)
        if ninja is None:
            raise Problem(f"{directory} was not built by Ninja")
        entries = json.loads(subprocess.check_output([ninja.group(1), "-t", "compdb", "-x"], cwd=directory, text=True))
        self.edges = {each["output"]: Edge(each["output"], each["command"], each["file"]) for each in entries}
        self.rests: Dict[str, pathlib.Path] = {}  # of unity sources, by the source that each lacks
        self.making_rest = {mutant.source: threading.Lock() for mutant in MUTANTS}

    def linking(self, is_plugin: bool) -> Edge:
        if is_plugin:
            return self.edges[PLUGIN]
        return next(edge for output, edge in self.edges.items()
                    if output.startswith(f"lib/{LIBRARY}") and " -shared " in edge.command)

    def compiling(self, source: pathlib.Path, library: Edge) -> Tuple[Edge, str]:
        """What compiles the source, and the text of the unity source that includes it, if there is one."""
        for word in library.command.split():
            edge = self.edges.get(word)
            if edge is None or not word.endswith(".o"):
                continue
            if (self.directory / edge.source) == source:
                return edge, ""
            if "/Unity/" in edge.source:
                text = (self.directory / edge.source).read_text(encoding="utf-8")
                if f'#include "{source}"' in text:
                    return edge, text
        raise Problem(f"no object of {library.output} is compiled from {source}")

    def compile(self, edge: Edge, name: str, text: str, include: pathlib.Path) -> pathlib.Path:
        """An object of `text`, made as `edge` makes its own."""
        source, compiled = self.scratch / f"{name}.cpp", self.scratch / f"{name}.o"
        source.write_text(text, encoding="utf-8")
        command = edge.command.replace(edge.output, str(compiled))
        flags = f"{MUTANT_FLAGS} -iquote {include}"
        run_command(replaced(command, f" -c {edge.source}", f" {flags} -c {source}"), self.directory)
        return compiled

    def objects(self, mutant: Mutant, library: Edge) -> Tuple[str, str]:
        """The object of the build that has the source, and what takes its place."""
        source = SOURCE_DIRECTORY / mutant.source
        text = replaced(source.read_text(encoding="utf-8"), mutant.before, mutant.after)
        edge, unity = self.compiling(source, library)
        made = [self.compile(edge, mutant.name, text, source.parent)]
        if unity:
            # What is compiled together with the source is so without it, once for all mutants of the source.
            with self.making_rest[mutant.source]:
                if mutant.source not in self.rests:
                    rest = replaced(unity, f'#include "{source}"', "")
                    self.rests[mutant.source] = self.compile(edge, f"without_{source.stem}", rest, source.parent)
            made.append(self.rests[mutant.source])
        return edge.output, " ".join(map(str, made))

    def link(self, mutant: Mutant) -> pathlib.Path:
        """The library or the plug-in with the mutant, in a directory of its own."""
        edge = self.linking(mutant.is_in_plugin)
        before, after = self.objects(mutant, edge)
        made = self.scratch / mutant.name / (PLUGIN if mutant.is_in_plugin else edge.output)
        made.parent.mkdir(parents=True)
        command = replaced(edge.command, f" -o {edge.output} ", f" {LINK_FLAGS} -o {made} ")
        run_command(replaced(command, f" {before} ", f" {after} "), self.directory)
        if not mutant.is_in_plugin:
            soname = re.search(r"-soname,(\S+)", edge.command)
            assert soname is not None, edge.command
            if soname.group(1) != made.name:
                (made.parent / soname.group(1)).symlink_to(made.name)
        return made.parent

    def environment(self, **changes: str) -> Dict[str, str]:
        return {**os.environ, "FARANDOLE_CUDA_LIBRARY": str(self.directory / "lib/libfake_cuda.so"),
                "FARANDOLE_NCCL_LIBRARY": str(self.directory / "lib/libfake_nccl.so"),
                "FARANDOLE_PLUGIN_DIR": str((self.directory / PLUGIN).parent), **changes}

    def environment_with(self, mutant: Mutant, library: pathlib.Path) -> Dict[str, str]:
        """In which programs of the build load what `link` has made."""
        deadline = {"FARANDOLE_TIMEOUT": str(MUTANT_DEADLINE_S)}
        if mutant.is_in_plugin:
            return self.environment(FARANDOLE_PLUGIN_DIR=str(library), **deadline)
        path = os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")]))
        environment = self.environment(LD_LIBRARY_PATH=path, **deadline)
        program = str(self.directory / "bin" / mutant.test.program)
        loaded = subprocess.check_output([program], env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"}, text=True)
        if str(library) not in loaded:
            raise Problem(f"{program} does not load {library}:\n{loaded}")
        return environment

    def run(self, test: Test, environment: Dict[str, str]) -> Outcome:
        command = [str(self.directory / "bin" / test.program), f"--gtest_filter={test.filter}", "--gtest_fail_fast"]
        if test.deadline_s > 0:
            environment = {**environment, "FARANDOLE_TIMEOUT": str(test.deadline_s)}
        if test.processes > 1:
            command = [str(SOURCE_DIRECTORY / "tests/support/local_job.sh"), "-n", str(test.processes), *command]
        # A fault leaves the flight recorder's file where the program runs.
        with subprocess.Popen(command, cwd=self.scratch, env=environment, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=TEST_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return Outcome(False, f"it ran longer than {TEST_LIMIT_S} s", output)
        if "[ RUN      ]" not in output or "[  SKIPPED ]" in output:
            raise Problem(f"the test did not run: {' '.join(command)}\n{output}")
        reason = REASON.search(output)
        return Outcome(process.returncode == 0, reason.group()[:200] if reason else f"status {process.returncode}", output)


def check_without_change(build: Build, mutants: List[Mutant]) -> None:
    for test in dict.fromkeys(mutant.test for mutant in mutants):
        outcome = build.run(test, build.environment())
        if not outcome.passes:
            raise Problem(f"{test.filter} fails without a change:\n{outcome.output}")


def is_found(build: Build, mutant: Mutant) -> bool:
    start = time.monotonic()
    try:
        environment = build.environment_with(mutant, build.link(mutant))
        for attempt in range(1, ATTEMPTS + 1):
            outcome = build.run(mutant.test, {**environment, "FAKE_DEVICE_SEED": str(attempt)})
            if not outcome.passes:
                break
    except Problem as problem:
        print(f"NOT APPLIED  {mutant.name} ({mutant.source}): {problem}", flush=True)
        return False
    seconds = f"{time.monotonic() - start:.1f} s"
    if outcome.passes:
        print(f"NOT FOUND    {mutant.name}: {mutant.leaves_out}; {mutant.test.filter} passes\n{outcome.output}", flush=True)
        return False
    print(f"found        {mutant.name}, {seconds}, run {attempt}: {outcome.reason.strip()}", flush=True)
    return True


def main(arguments: List[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    unknown = set(arguments[1:]) - {mutant.name for mutant in MUTANTS}
    if unknown:
        print(f"no mutant {', '.join(sorted(unknown))}; there are {', '.join(mutant.name for mutant in MUTANTS)}")
        return 2
    mutants = [mutant for mutant in MUTANTS if mutant.name in arguments[1:] or not arguments[1:]]
    with tempfile.TemporaryDirectory(prefix="farandole-mutants-") as scratch:
        try:
            build = Build(pathlib.Path(arguments[0]).resolve(), pathlib.Path(scratch))
            check_without_change(build, mutants)
        except Problem as problem:
            print(problem)
            return 1
        with concurrent.futures.ThreadPoolExecutor(min(MOST_AT_A_TIME, os.cpu_count() or 1)) as pool:
            found = list(pool.map(lambda mutant: is_found(build, mutant), mutants))
    print(f"{sum(found)} of {len(found)} mutants are found")
    return int(not all(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
