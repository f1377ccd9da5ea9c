#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mutants.py BUILD_DIRECTORY [NAME...]

Breaks the code that is shipped, by one mutant of mutant_table.py after another (or by those that are named), and runs the
test that must fail then, on the double of tests/support/host_device. Says of each mutant whether its test finds it, and ends
with 1 if one is not found or no longer applies, or if a test fails without a change. The build is Ninja's, by g++ or clang,
and stays as it is: what is compiled and linked anew lies in a temporary directory.
"""
import concurrent.futures
import functools
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
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

sys.dont_write_bytecode = True  # the sources stay as they are, too
from mutant_table import DOUBLE, LIBRARY, MUTANTS, PLUGIN, TRAINER, TRAINER_PLUGIN, Mutant, Test  # noqa: E402

SOURCE_DIRECTORY = pathlib.Path(__file__).resolve().parents[2]
# The timing of streams is random and differs from run to run.
ATTEMPTS = 10
# Compilers, and tests whose ranks mostly wait, that run at the same time.
MOST_AT_A_TIME = 2
# Ranks that wait for each other in a circle give up.
MUTANT_DEADLINE_S = 2
# A mutant runs once, for a short time, and may leave something unused.
MUTANT_FLAGS = "-g0 -w"
LINK_FLAGS = "-Wl,--strip-debug"
REASON = re.compile(r"fake device misuse: .*|watchdog: .*|^C\+\+ exception .*|^(?!unknown file).*: Failure$|.*Assertion .*",
                    re.MULTILINE)


T = TypeVar("T")


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


def changed_source(mutant: Mutant) -> str:
    text = (SOURCE_DIRECTORY / mutant.source).read_text(encoding="utf-8")
    return replaced(text, mutant.before, mutant.after)


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
        self.sources = [SOURCE_DIRECTORY / source for source in dict.fromkeys(mutant.source for mutant in MUTANTS)]
        self.shared: Dict[str, "concurrent.futures.Future[Any]"] = {}
        self.sharing = threading.Lock()

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` returns, or raises, for the first thread that asks for it by this name."""
        with self.sharing:
            is_first = name not in self.shared
            future = self.shared.setdefault(name, concurrent.futures.Future())
        if is_first:
            try:
                future.set_result(make())
            except Exception as problem:  # pylint: disable=broad-except
                future.set_exception(problem)
        result: T = future.result()
        return result

    def has(self, library: str) -> bool:
        """False for the trainer's libraries in a build without it."""
        return any(output.startswith(library) for output in self.edges)

    def linking(self, library: str) -> Edge:
        return next(edge for output, edge in self.edges.items()
                    if output.startswith(library) and " -shared " in edge.command)

    def find(self, source: pathlib.Path, library: Edge) -> Tuple[Optional[Edge], str]:
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
        return None, ""

    def compiling(self, source: pathlib.Path, library: Edge) -> Tuple[Edge, str]:
        edge, text = self.find(source, library)
        if edge is None:
            raise Problem(f"no object of {library.output} is compiled from {source}")
        return edge, text

    def preamble(self, edge: Edge) -> pathlib.Path:
        """The headers of all sources that `edge` and its like compile. They are compiled once, ahead of the sources."""

        def key(each: Edge) -> str:
            return each.command.replace(each.output, "").replace(each.source, "")

        def make() -> pathlib.Path:
            libraries = [self.linking(library) for library in (LIBRARY, PLUGIN, DOUBLE, TRAINER, TRAINER_PLUGIN)
                         if self.has(library)]
            found = [(source, self.find(source, library)[0]) for source in self.sources for library in libraries]
            sources = [source for source, other in found if other is not None and key(other) == key(edge)]
            lines = [line for source in sources for line in source.read_text(encoding="utf-8").splitlines()
                     if line.startswith("#include ")]
            header = self.scratch / f"preamble_{abs(hash(key(edge)))}.h"  # two may be made at the same time
            header.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")
            paths = " ".join(f"-iquote {path}" for path in dict.fromkeys(source.parent for source in sources))
            command = edge.command.replace(edge.output, f"{header}.gch")
            run_command(replaced(command, f" -c {edge.source}", f" {self.flags(edge)} {paths} -x c++-header -c {header}"),
                        self.directory)
            return header

        return self.once(f"preamble of {key(edge)}", make)

    @staticmethod
    def flags(edge: Edge) -> str:
        """Eigen, with which the trainer's sources are compiled, needs constants that only an optimiser propagates."""
        return f"{'-O1' if '/eigen3' in edge.command else '-O0'} {MUTANT_FLAGS}"

    def compile(self, edge: Edge, name: str, text: str, include: pathlib.Path) -> pathlib.Path:
        """An object of `text`, made as `edge` makes its own."""
        source, compiled = self.scratch / f"{name}.cpp", self.scratch / f"{name}.o"
        source.write_text(text, encoding="utf-8")
        command = edge.command.replace(edge.output, str(compiled))
        flags = f"{self.flags(edge)} -iquote {include} -include {self.preamble(edge)}"
        run_command(replaced(command, f" -c {edge.source}", f" {flags} -c {source}"), self.directory)
        return compiled

    def rests(self, source: pathlib.Path, edge: Edge, unity: str) -> List[Callable[[], pathlib.Path]]:
        """What is compiled together with the source, once for all mutants: each source that has mutants by itself."""
        apart = [each for each in self.sources if f'#include "{each}"' in unity]
        text = unity
        for each in apart:
            text = replaced(text, f'#include "{each}"', "")
        named = {f"without_mutants_{abs(hash(edge.source))}": (text, source.parent)} if "#include" in text else {}
        named.update({f"unchanged_{each.stem}": (each.read_text(encoding="utf-8"), each.parent)
                      for each in apart if each != source})
        return [functools.partial(self.once, name, functools.partial(self.compile, edge, name, *rest))
                for name, rest in named.items()]

    def objects(self, mutant: Mutant, library: Edge) -> Tuple[str, str]:
        """The object of the build that has the source, and what takes its place."""
        source = SOURCE_DIRECTORY / mutant.source
        text = changed_source(mutant)
        edge, unity = self.compiling(source, library)
        made = [self.compile(edge, mutant.name, text, source.parent)]
        made += [make() for make in self.rests(source, edge, unity)]
        return edge.output, " ".join(map(str, made))

    def is_in_program(self, mutant: Mutant) -> bool:
        """True if the test's program has the source in itself, as tests of parts do."""
        command = self.edges[f"bin/{mutant.test.program}"].command
        internals = f"{pathlib.Path(mutant.library).stem}_internals.a"
        compiled = self.compiling(SOURCE_DIRECTORY / mutant.source, self.linking(mutant.library))[0].output
        return f"/{internals}" in command or compiled in command.split()

    def link(self, mutant: Mutant) -> pathlib.Path:
        """The program, the library, the plug-in or the double with the mutant, in a directory of its own."""
        library = self.linking(mutant.library)
        before, after = self.objects(mutant, library)
        if self.is_in_program(mutant):
            edge = self.edges[f"bin/{mutant.test.program}"]
            made = self.scratch / mutant.name / mutant.test.program
            # The linker leaves in the archive what these objects define.
            command = edge.command.replace(f" {before} ", " ")
            command = replaced(command, f" -o {edge.output} ", f" {after} {LINK_FLAGS} -o {made} ")
        else:
            edge = library
            made = self.scratch / mutant.name / edge.output
            command = replaced(edge.command, f" -o {edge.output} ", f" {LINK_FLAGS} -o {made} ")
            command = replaced(command, f" {before} ", f" {after} ")
        made.parent.mkdir(parents=True)
        run_command(command, self.directory)
        soname = re.search(r"-soname,(\S+)", edge.command)
        if soname is not None and soname.group(1) != made.name:
            (made.parent / soname.group(1)).symlink_to(made.name)
        return made.parent

    def environment(self, **changes: str) -> Dict[str, str]:
        return {**os.environ, "FARANDOLE_CUDA_LIBRARY": str(self.directory / DOUBLE),
                "FARANDOLE_NCCL_LIBRARY": str(self.directory / "lib/libfake_nccl.so"),
                "FARANDOLE_CUBLAS_LIBRARY": str(self.directory / "lib/libfake_cublas.so"),
                "FARANDOLE_CUDNN_LIBRARY": str(self.directory / "lib/libfake_cudnn.so"),
                "FARANDOLE_PLUGIN_DIR": str((self.directory / PLUGIN).parent), **changes}

    def environment_with(self, mutant: Mutant, library: pathlib.Path) -> Dict[str, str]:
        """In which programs of the build load what `link` has made."""
        deadline = {"FARANDOLE_TIMEOUT": str(MUTANT_DEADLINE_S)}
        if self.is_in_program(mutant):
            path = os.pathsep.join(filter(None, [str(self.directory / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
            return self.environment(LD_LIBRARY_PATH=path, **deadline)
        if mutant.library in (PLUGIN, TRAINER_PLUGIN):
            return self.environment(FARANDOLE_PLUGIN_DIR=str(library), **deadline)
        if mutant.library == DOUBLE:
            return self.environment(FARANDOLE_CUDA_LIBRARY=str(library / pathlib.Path(DOUBLE).name), **deadline)
        path = os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")]))
        environment = self.environment(LD_LIBRARY_PATH=path, **deadline)
        program = str(self.directory / "bin" / mutant.test.program)
        loaded = subprocess.check_output([program], env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"}, text=True)
        if str(library) not in loaded:
            raise Problem(f"{program} does not load {library}:\n{loaded}")
        return environment

    def run(self, test: Test, environment: Dict[str, str], programs: Optional[pathlib.Path] = None) -> Outcome:
        command = [str((programs or self.directory / "bin") / test.program), f"--gtest_filter={test.filter}", "--gtest_fail_fast"]
        if test.deadline_s > 0:
            environment = {**environment, "FARANDOLE_TIMEOUT": str(test.deadline_s)}
        if test.memory:
            environment = {**environment, "FAKE_DEVICE_MEMORY": test.memory}
        if test.by_rank:
            command = ["sh", "-c", f'{test.by_rank} exec "$0" "$@"', *command]
        if test.processes > 1:
            command = [str(SOURCE_DIRECTORY / "tests/support/local_job.sh"), "-n", str(test.processes), *command]
        # A fault leaves the flight recorder's file where the program runs.
        with subprocess.Popen(command, cwd=self.scratch, env=environment, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True) as process:
            try:
                output, _ = process.communicate(timeout=test.limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return Outcome(False, f"it ran longer than {test.limit_s} s", output)
        if "[ RUN      ]" not in output or "[  SKIPPED ]" in output:
            raise Problem(f"the test did not run: {' '.join(command)}\n{output}")
        reason = REASON.search(output)
        return Outcome(process.returncode == 0, reason.group()[:200] if reason else f"status {process.returncode}", output)


def check_table() -> None:
    """Also of mutants that do not run now, so that the change that makes a mutant out of date sees it."""
    for mutant in MUTANTS:
        try:
            changed_source(mutant)
        except Problem as problem:
            raise Problem(f"{mutant.name} ({mutant.source}) no longer applies: {problem}") from problem


def check_without_change(build: Build, test: Test) -> float:
    """Seconds that the test takes."""
    start = time.monotonic()
    outcome = build.run(test, build.environment())
    if not outcome.passes:
        raise Problem(f"{test.filter} fails without a change:\n{outcome.output}")
    return time.monotonic() - start


def prepare(build: Build, mutants: List[Mutant], pool: concurrent.futures.Executor) -> Dict[Test, float]:
    """Compiles what mutants share, and runs all tests without a change. Returns how long each takes."""
    makes = []
    for mutant in mutants:
        source = SOURCE_DIRECTORY / mutant.source
        makes += build.rests(source, *build.compiling(source, build.linking(mutant.library)))
    compiled = [pool.submit(make) for make in makes]
    tests = list(dict.fromkeys(mutant.test for mutant in mutants))
    seconds = dict(zip(tests, pool.map(functools.partial(check_without_change, build), tests)))
    for each in compiled:
        each.result()
    return seconds


def is_found(build: Build, mutant: Mutant) -> bool:
    start = time.monotonic()
    try:
        made = build.link(mutant)
        environment = build.environment_with(mutant, made)
        programs = made if build.is_in_program(mutant) else None
        built = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            outcome = build.run(mutant.test, {**environment, "FAKE_DEVICE_SEED": str(attempt)}, programs)
            if not outcome.passes:
                break
    except Problem as problem:
        print(f"NOT APPLIED  {mutant.name} ({mutant.source}): {problem}", flush=True)
        return False
    seconds = f"built in {built - start:.1f} s, run in {time.monotonic() - built:.1f} s"
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
        with concurrent.futures.ThreadPoolExecutor(min(MOST_AT_A_TIME, os.cpu_count() or 1)) as pool:
            start = time.monotonic()
            try:
                check_table()
                build = Build(pathlib.Path(arguments[0]).resolve(), pathlib.Path(scratch))
                mutants = [mutant for mutant in mutants if build.has(mutant.library)]
                seconds = prepare(build, mutants, pool)
            except Problem as problem:
                print(problem)
                return 1
            print(f"compiled what mutants share, and ran their tests without a change, in {time.monotonic() - start:.1f} s",
                  flush=True)
            # The longest first, so that none of them is left to run alone at the end.
            mutants.sort(key=lambda mutant: -seconds[mutant.test])
            found = list(pool.map(functools.partial(is_found, build), mutants))
    print(f"{sum(found)} of {len(found)} mutants are found")
    return int(not all(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
