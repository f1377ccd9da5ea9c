# SPDX-License-Identifier: Apache-2.0
"""Runs the marked code blocks of pages as they stand, and compares their outputs with those that the pages show.

    run.py --build BUILD [--python PYTHON] [--compiler CXX] PAGE…
    run.py --build BUILD --write PAGE…    writes the real outputs into the pages
    run.py --list PAGE…                   prints the mark of each block

docs/testing.md describes the marks. All blocks of a page run in one temporary directory, which is also $HOME, and
which has the repository's `examples`. What a block exports, and its directory, last until the end of the page.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Dict, List, Optional

import blocks

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
TIMEOUT_S = 300  # of a command
LINE_WIDTH = 118
DATA = Path("/usr/share/datasets/fashion-mnist")


class PageError(Exception):
    """A block that fails or prints something else. The text begins with the place of the block."""


class Home:
    """A temporary home directory with an installed Farandole, and the variables of a user's shell."""

    def __init__(self, build: Path, python: str, compiler: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="farandole-page-"))
        self.prefix = self.directory / "opt" / "farandole"
        self.python = python
        install = ["cmake", "--install", str(build), "--prefix", str(self.prefix)]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PageError(f"cmake --install failed:\n{done.stdout}{done.stderr}")
        shutil.copytree(SOURCE / "examples", self.directory / "examples")
        programs = self.directory / ".programs"
        programs.mkdir()
        for name in ("python", "python3"):  # as in an active environment
            self._write_program(programs / name, shlex.quote(python))
        self._write_program(programs / "c++", shutil.which(compiler) or compiler)
        self._write_program(programs / "farandole-run", f"{shlex.quote(python)} -m farandole.run")
        hidden = ("FARANDOLE_", "PYTHON", "PKG_CONFIG", "LD_LIBRARY_PATH", "CMAKE_", "CXX")
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.variables.update(
            HOME=str(self.directory),
            PATH=f"{programs}:{self.prefix}/bin:{os.environ['PATH']}",
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONPATH=str(build / "python"),
            CXX=compiler,
            COLUMNS="80",
        )
        self._state = self.directory / ".state"
        self._state.write_text("")

    @staticmethod
    def _write_program(path: Path, command: str) -> None:
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)

    def has(self, need: str) -> bool:
        """True if this machine has what a block needs."""
        if need == "data":
            return DATA.is_dir()
        if need == "trainer":
            return bool(list(self.prefix.glob("lib*/**/libfarandole_trainer.so")))
        if need == "pkg-config":
            return shutil.which("pkg-config") is not None
        check = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({need!r}) is None)"
        return subprocess.run([self.python, "-c", check], check=False).returncode == 0

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        """Runs a script of bash, with the directory and the exported variables that the previous script left."""
        before = f'. {self._state}\n[ -z "${{page_directory-}}" ] || cd "$page_directory"\nset -e -o pipefail'
        text = f"{before}\n{script}\nexport page_directory=$PWD\nexport -p >{self._state}\n"
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                ["bash", "-c", text],
                cwd=self.directory,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                status = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                status = process.wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(script, status, out.read(), err.read())

    def working_directory(self) -> Path:
        done = self.run("pwd")
        return Path(done.stdout.strip())

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class PageRun:
    """One run of the blocks of a page."""

    def __init__(self, page: Path, home: Home, write: bool) -> None:
        self.page, self.home, self.write = page, home, write
        self.counts: Dict[str, int] = {}
        self.differs = False  # true if an output is not that of the page
        self._output: Optional[List[str]] = None  # of the last block that ran; None if it was skipped
        self._replaced: List["tuple[int, int, List[str]]"] = []  # first and last line of the page, new lines

    def run(self) -> None:
        actions = {"run": self._run, "compile": self._compile, "file": self._save, "output": self._compare_with_last}
        for block in blocks.parse(self.page):
            missing = [need for need in block.values("needs") if not self.home.has(need)]
            if missing:
                print(f"{block.place()}: skipped, because there is no {missing[0]}")
                self._count("skipped")
                self._output = None
            elif block.kind in actions:
                actions[block.kind](block)
                self._count(block.kind)
            else:
                self._count("not run" if block.kind else "not marked")
        if self._replaced:
            self._write_page()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _run(self, block: blocks.Block) -> None:
        if block.value("in"):
            self._output = self._checked(block, self._framed(block))
            return
        commands = blocks.session(block.lines)
        if not commands:
            self._output = self._checked(block, "\n".join(block.lines))
        for command in commands:
            output = self._checked(block, command.text)
            first = block.first + command.first
            self._compare(block, first, command.output, output, block.options)

    def _checked(self, block: blocks.Block, script: str) -> List[str]:
        """Runs a script; returns the lines that it prints."""
        done = self.home.run(script)
        if (done.returncode != 0) != ("fails" in block.options):
            raise PageError(f"{block.place()}: status {done.returncode}\n{script}\n{done.stdout}{done.stderr}")
        return blocks.visible(done.stdout + done.stderr if "stderr" in block.options else done.stdout)

    def _framed(self, block: blocks.Block) -> str:
        """Puts a block into its frame; returns the command that compiles and runs the result."""
        source = self._write_framed(block)
        ranks = block.value("ranks")
        launcher = f"farandole-run -np {ranks} " if ranks else ""
        if source.suffix == ".py":
            return f"{launcher}python {source}"
        program, libraries = source.with_suffix(""), self._library_directory()
        links = f"-L{libraries} -lfarandole -Wl,-rpath,{libraries}"
        return f"{self._compiler(source)} {links} -o {program} && {launcher}{program}"

    def _write_framed(self, block: blocks.Block) -> Path:
        frame = HERE / "frames" / block.value("in")
        source = self.home.directory / f"block_{block.first}{frame.suffix}"
        source.write_text(filled(frame, block.lines))
        return source

    def _compiler(self, source: Path) -> str:
        return f"c++ -std=c++20 -I{self.home.prefix}/include {source}"

    def _library_directory(self) -> Path:
        return next(self.home.prefix.glob("lib*/**/libfarandole.so")).parent

    def _compile(self, block: blocks.Block) -> None:
        source = self._write_framed(block)
        if source.suffix == ".py":
            compile(source.read_text(), block.place(), "exec")
        else:
            self._checked(block, f"{self._compiler(source)} -fsyntax-only")

    def _save(self, block: blocks.Block) -> None:
        directory = self.home.working_directory()
        for name in block.options:
            if not name.startswith("needs "):
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(block.lines) + "\n")

    def _compare_with_last(self, block: blocks.Block) -> None:
        if self._output is not None:
            self._compare(block, block.first, block.lines, self._output, block.options)

    def _compare(
        self, block: blocks.Block, first: int, expected: List[str], actual: List[str], options: List[str]
    ) -> None:
        text = blocks.difference(expected, actual, options)
        if self.write and not any(blocks.ANYTHING in line for line in expected):
            if "wrapped" in options:
                actual = textwrap.wrap(" ".join(actual), LINE_WIDTH)
            self._replaced.append((first, first + len(expected), actual))
        elif text:
            shown = "\n".join(actual)
            print(f"FAIL: {block.place()}: {text}\nAll lines:\n{shown}")
            self.differs = True

    def _write_page(self) -> None:
        lines = self.page.read_text(encoding="utf-8").splitlines()
        for first, last, new in sorted(self._replaced, reverse=True):
            lines[first:last] = new
        self.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def filled(frame: Path, lines: List[str]) -> str:
    """The text of a frame, whose line `BLOCK` (after // or #) is replaced by the lines of a block."""
    text = []
    for line in frame.read_text(encoding="utf-8").splitlines():
        if line.strip() in ("// BLOCK", "# BLOCK"):
            indent = line[: len(line) - len(line.lstrip())]
            text += [indent + each if each else each for each in lines]
        else:
            text.append(line)
    return "\n".join(text) + "\n"


def print_marks(page: Path) -> None:
    for block in blocks.parse(page):
        mark = f"{block.kind}: {', '.join(block.options)}" if block.options else block.kind or "not marked"
        first = next((line for line in block.lines if line), "")
        print(f"{block.place()}: {mark}   [{first}]")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, help="the build tree, which is installed for each page")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the pages' programs")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--write", action="store_true", help="write real outputs into the pages")
    parser.add_argument("--list", action="store_true", help="print the mark of each block, and run nothing")
    parser.add_argument("pages", type=Path, nargs="+")
    options = parser.parse_args()
    if not options.list and not options.build:
        parser.error("--build is needed")
    return options


def main() -> int:
    options = parse_arguments()
    failed = False
    for page in options.pages:
        if options.list:
            print_marks(page)
            continue
        home = Home(options.build.resolve(), options.python, options.compiler)
        try:
            run = PageRun(page, home, options.write)
            run.run()
            failed |= run.differs
            print(f"{page}: " + ", ".join(f"{count} {what}" for what, count in sorted(run.counts.items())))
        except (PageError, ValueError) as error:
            print(f"FAIL: {error}")
            failed = True
        finally:
            home.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
