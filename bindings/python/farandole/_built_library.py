# SPDX-License-Identifier: Apache-2.0
"""Builds the package's libraries for a framework, and keeps builds in a cache.

Such a library is C++ code that uses the framework's classes, so a build works with exactly one version of the framework.
The package contains the source, and builds for the versions that were present when the package was built. For any other
version, the first import builds the library into a cache of the user; `python -m farandole.build_ops` does so ahead of
time.

tensorflow/_op_library.py and torch/_backend_library.py describe their libraries. As programs, these files build the
library for the framework of the interpreter that runs them; this file therefore imports nothing else of the package.
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

_COMPILERS = ("g++", "c++", "clang++")
_MAX_LINES_SHOWN = 20
_UNUSED_DAYS = 90  # a library that was not used for this time is deleted
_LEFT_BEHIND_DAYS = 1  # age at which temporary files of killed builds are deleted
# A process that waits this long for another process's build prints a message; a build takes 5 to 20 s.
_LONG_WAIT_SECONDS = 30


class Framework(NamedTuple):
    """A framework, and the library that this package builds for it."""

    name: str  # "TensorFlow"
    package: str  # as it is installed: "tensorflow"
    library: str  # "op library"
    contents: str  # "ops"
    stem: str  # of the library's file: "libfarandole_tensorflow_"
    define: str  # macro whose value is the recipe's mark
    seconds: str  # that a build takes: "5 to 10 s"
    oldest: Tuple[int, int]  # tested versions
    newest: Tuple[int, int]

    def supported(self) -> str:
        return f"{self.oldest[0]}.{self.oldest[1]} to {self.newest[0]}.{self.newest[1]}"

    def to_use_one_that_works(self) -> str:
        low, high = self.oldest, self.newest
        return (
            f"To use a {self.name} that works: pip install "
            f'"{self.package}>={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"'
        )

    def why_not_tested(self, version: str) -> Optional[str]:
        """A warning about a version that is newer than the tested versions; None for a tested version.

        Raises ImportError for an older version.
        """
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None:
            return f"{self.name} calls its version '{version}', which Farandole cannot compare with those it works with"
        found = (int(numbers[1]), int(numbers[2]))
        if found < self.oldest:
            raise ImportError(
                f"Farandole works with {self.name} {self.supported()}, and this is {self.name} {version}. "
                f"{self.to_use_one_that_works()}"
            )
        if found > self.newest:
            return f"{self.name} {version} is newer than those that Farandole is tested with ({self.supported()})"
        return None


class Recipe:
    """How to build the library for the framework of this process.

    The library names libfarandole only by SONAME. The package has already loaded libfarandole, and the loader reuses
    the loaded copy, wherever its file is. The same build therefore works with a wheel, a build tree and a
    distribution's package. With `-z now`, a missing symbol is an error when the library is loaded, and not during a
    training step.

    mark: text in the library that identifies the recipe: the framework's version and a digest.
    """

    framework: Framework

    def __init__(
        self,
        version: str,
        facts: Sequence[str],
        source_dir: Path,
        header_dir: Path,
        headers: Sequence[str],
        library: str,
        compile_flags: Sequence[str],
        link_flags: Sequence[str],
    ):
        """facts: what else determines the binary. headers: names of the headers in header_dir/farandole that it uses.
        library: path of libfarandole, whose file name is the SONAME; or the SONAME, which the linker finds."""
        self.version = version
        self.source_dir = source_dir
        self.header_dir = header_dir
        self.library = library
        self.sources = sorted(source_dir.glob("*.cpp"))
        self._headers = [*sorted(source_dir.glob("*.h")), *(header_dir / "farandole" / name for name in headers)]
        self._compile_flags = list(compile_flags)
        self._link_flags = list(link_flags)
        self.mark = f"farandole-{self.framework.package}-build:{version}:{self._digest(facts)}"
        self.was_built = False

    def _digest(self, facts: Sequence[str]) -> str:
        """Digest of everything that determines the binary, except the compiler."""
        # Includes the machine type, because hosts of several types may share a home directory.
        texts = (*facts, os.path.basename(self.library), os.uname().machine)
        digest = hashlib.sha256("\0".join(texts).encode())
        for flag in self._compile_flags + self._link_flags:
            if not flag.startswith(("-I", "-L")):
                digest.update(flag.encode())
        for path in [*self._headers, *self.sources]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:24]

    def file_name(self) -> str:
        return f"{self.framework.stem}{self.version}.so"

    def fits(self, library: Path) -> bool:
        return library.exists() and self.mark.encode() in library.read_bytes()

    def command(self, compiler: List[str], output: Path) -> List[str]:
        # -isystem: no warnings about the framework's headers.
        flags = [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in self._compile_flags]
        return [
            *compiler,
            *("-x", "c++", "-", "-x", "none", "-o", str(output), "-shared", "-fPIC", "-O2", "-DNDEBUG"),
            *("-fvisibility=hidden", "-Wall", "-Wextra", f"-I{self.source_dir}", f"-I{self.header_dir}"),
            *(f'-D{self.framework.define}="{self.mark}"', *flags),
            *(*self._link_flags, self.library if "/" in self.library else f"-l:{self.library}", "-Wl,-z,now"),
        ]

    def build(self, compiler: List[str], output: Path, mode: int) -> None:
        """Builds the library and puts it in place atomically. mode: permissions of the file."""
        # A single translation unit, because the framework's headers take most of the time.
        unit = "".join(f'#include "{source}"\n' for source in self.sources)
        output.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(output.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(output.parent))
        # A random name: process ids are not unique across hosts and containers.
        temporary = output.with_name(f"{output.name}.{secrets.token_hex(8)}.tmp")
        command = self.command(compiler, temporary)
        made = self.framework
        say(
            f"building the {made.contents} for {made.name} {self.version} with {compiler[0]} ({made.seconds}, once) "
            f"into {output.parent}"
        )
        try:
            done = subprocess.run(command, input=unit, capture_output=True, text=True)
            if done.returncode != 0:
                raise ImportError(self._failure(command, done.stderr))
            temporary.chmod(mode)
            os.replace(temporary, output)
            self.was_built = True
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()

    def _failure(self, command: List[str], errors: str) -> str:
        lines = errors.strip().splitlines()
        shown = "\n  ".join(lines[:_MAX_LINES_SHOWN])
        made = self.framework
        return (
            f"the {made.library} of Farandole could not be built for {made.name} {self.version} (it is known to work "
            f"with {made.supported()}):\n  {shown}\nThe command was: {shlex.join(command)}\n"
            f"{made.to_use_one_that_works()}"
        )


def say(text: str) -> None:
    print(f"farandole: {text}", file=sys.stderr, flush=True)


def first_existing(*paths: Path) -> Path:
    for path in paths:
        if path.exists():
            return path
    raise ImportError(f"none of {', '.join(map(str, paths))} exists; reinstall Farandole")


def _compiler() -> Optional[List[str]]:
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    return next(([name] for name in _COMPILERS if shutil.which(name)), None)


def need_compiler(framework: Framework, version: str) -> List[str]:
    compiler = _compiler()
    if compiler is None:
        raise ImportError(
            f"this installation of Farandole has no {framework.library} for {framework.name} {version}, and there is no "
            "C++ compiler to build it with. To install one: apt-get install g++ (or: conda install gxx_linux-64)"
        )
    return compiler


def _need_private(path: Path, status: os.stat_result, may_be_sticky: bool = False) -> None:
    """Raises ImportError if the path is a symbolic link, or if a user other than this user and root can write it.
    may_be_sticky: accepts a sticky directory such as /tmp, in which users cannot replace files of other users."""
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if stat.S_ISLNK(status.st_mode):
        what, remedy = "is a symbolic link", f"remove the link (rm {path}), or "
    elif status.st_uid not in (0, os.geteuid()):
        what, remedy = "is somebody else's", ""
    elif others_write and not (may_be_sticky and status.st_mode & stat.S_ISVTX):
        what, remedy = "can be written by others", f"chmod go-w {path}, or "
    else:
        return
    raise ImportError(
        f"{path} {what} (owner: user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}), and code of "
        f"Farandole is loaded from there: only this user (user {os.geteuid()}) may be able to write it. "
        f"What to do: {remedy}export XDG_CACHE_HOME=<a directory of yours that nobody else can write>"
    )


def _make_private(path: Path) -> None:
    """Creates a directory, and missing parents, accessible to this user only."""
    if path.is_dir():
        return
    _make_private(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process was faster; or a dangling link, which _need_private rejects
        if path.is_file():
            raise


def _places() -> List[Path]:
    """Candidates for the cache directory: the user's cache, then a fallback."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(home, "farandole"), Path(tempfile.gettempdir(), f"farandole-{os.geteuid()}")]


def _why_unusable(path: Path) -> Optional[str]:
    """Returns why the cache directory cannot be used, or None if it can. Creates a missing directory.

    Raises ImportError if others can write the directory. Files may be opened by path afterwards: no other user can
    replace the directory, because its parent belongs to this user or root, and is sticky or not writable by others. The
    parent may be a link.
    """
    try:
        _make_private(path.parent)
        _need_private(path.parent, path.parent.stat(), may_be_sticky=True)
        _make_private(path)
        _need_private(path, path.lstat())
        is_noexec = os.statvfs(path).f_flag & os.ST_NOEXEC
    except OSError as error:
        return f"it cannot be made: {error.strerror}"
    return "its file system is mounted noexec, and nothing can be loaded from there" if is_noexec else None


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[IO[bytes]]:
    """Opens a file of the cache. Raises ImportError if the file is a link, or others can write it."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            _need_private(path, path.lstat())
        raise
    with open(descriptor, "rb") as file:
        _need_private(path, os.fstat(descriptor))
        yield file


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock between processes. On a file system without locks, several processes may build the same file; each
    puts its build in place atomically."""
    with _opened(path, os.O_RDWR | os.O_CREAT) as file:
        long_wait = threading.Timer(
            _LONG_WAIT_SECONDS, say, [f"still waiting for another process, which builds a library and holds {path}"]
        )
        long_wait.daemon = True
        long_wait.start()
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        finally:
            long_wait.cancel()
        yield


def _is_cached(recipe: Recipe, library: Path) -> bool:
    try:
        with _opened(library, os.O_RDONLY) as file:
            return recipe.mark.encode() in file.read()
    except FileNotFoundError:
        return False


def from_cache(recipe: Recipe) -> Path:
    """Returns the library for the recipe from the cache. If the library is missing, one process builds it while
    concurrent processes wait.

    A library that contains the recipe's mark is used without a compiler and without write access: compute nodes may
    have neither a compiler nor a writable home directory.
    """
    reasons = []
    for directory in _places():
        reason = _why_unusable(directory)
        library = directory / f"{recipe.framework.stem}{recipe.version}_{recipe.mark[-16:]}.so"
        if reason is None and not _is_cached(recipe, library):
            if os.access(directory, os.W_OK):
                _build_once(recipe, library)
            else:
                reason = "it cannot be written"
        if reason is None:
            with contextlib.suppress(OSError):
                os.utime(library)  # marks the library as used, for _prune
            return library
        reasons.append(f"{directory} ({reason})")
    raise ImportError(
        f"there is no place for the {recipe.framework.library}: neither {' nor '.join(reasons)}. To name one: export "
        "XDG_CACHE_HOME=<a directory that you can write, of a file system that allows to execute>"
    )


def _build_once(recipe: Recipe, library: Path) -> None:
    with _locked(library.with_suffix(".lock")):
        if not _is_cached(recipe, library):
            recipe.build(need_compiler(recipe.framework, recipe.version), library, mode=0o700)
            _prune(library.parent, recipe.framework.stem, keep=library)


def _prune(directory: Path, stem: str, keep: Path) -> None:
    """Deletes files other than `keep`: libraries that were not used for _UNUSED_DAYS, and temporary files of killed
    builds. A process that has loaded a deleted library keeps it until the process ends."""
    now = time.time()
    for path in directory.glob(f"{stem}*"):
        days = _LEFT_BEHIND_DAYS if path.suffix == ".tmp" else _UNUSED_DAYS
        with contextlib.suppress(OSError):
            if path.stem != keep.stem and now - path.lstat().st_mtime > days * 86400:
                path.unlink()


def main(framework: Framework, make_recipe: Callable[[Path, str], Recipe], packaged: Path, arguments: List[str]) -> int:
    """The program that builds the library for the framework of this interpreter, and prints its path.

    make_recipe: makes the recipe from the directory of headers and libfarandole. packaged: the package's directory of
    libraries."""
    parser = argparse.ArgumentParser(
        description=f"Builds the {framework.library} for the {framework.name} of this interpreter."
    )
    parser.add_argument("--header-dir", type=Path, required=True, help="directory that contains farandole/base.h")
    parser.add_argument("--library", required=True, help="libfarandole: its path, whose file name is its SONAME")
    parser.add_argument("--optional", action="store_true", help="only warn if the library cannot be built")
    parser.add_argument(
        "output_dir",
        type=Path,
        nargs="?",
        help="directory for the library; default: the library in the package if it fits, else this user's cache",
    )
    options = parser.parse_args(arguments)
    try:
        recipe = make_recipe(options.header_dir.resolve(), options.library)
        print(_built_for(recipe, packaged, options.output_dir))
    except (ImportError, OSError) as error:
        reason = _in_words(framework, error)
        if not options.optional:
            print(f"no {framework.contents}: {reason}", file=sys.stderr)
            return 1
        print(f"warning: no {framework.contents}; the package will try again when it is imported: {reason}")
    return 0


def _built_for(recipe: Recipe, packaged: Path, output_dir: Optional[Path]) -> Path:
    made = recipe.framework
    doubt = made.why_not_tested(recipe.version)
    if doubt is not None:
        say(doubt)
    if output_dir is None:
        library = packaged / recipe.file_name()
        if not recipe.fits(library):
            library = from_cache(recipe)
    else:
        library = output_dir / recipe.file_name()
        if not recipe.fits(library):
            recipe.build(need_compiler(made, recipe.version), library, mode=0o755)
    if not recipe.was_built:
        say(f"the {made.library} for {made.name} {recipe.version} was there already")
    return library


def _in_words(framework: Framework, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == framework.package:
        return f"{sys.executable} has no {framework.name}. {framework.to_use_one_that_works()}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
