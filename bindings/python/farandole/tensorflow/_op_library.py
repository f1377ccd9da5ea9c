# SPDX-License-Identifier: Apache-2.0
"""Builds the op library, and keeps builds in a cache.

The op library is C++ code that uses TensorFlow's classes, so a build works with exactly one version of TensorFlow. The
package contains the source, and builds for the versions that were present when the package was built. For any other
version, the first import builds the library into a cache of the user (5 to 10 seconds, once); `python -m
farandole.build_ops` does so ahead of time.

As a program, this file builds the library for the TensorFlow of the interpreter that runs it. The file imports nothing
else of the package.
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
from typing import IO, Iterator, List, Optional

OLDEST, NEWEST = (2, 16), (2, 21)  # tested versions of TensorFlow; pyproject.toml has the same bounds

_HERE = Path(__file__).resolve().parent
_STEM = "libfarandole_tensorflow_"
_MARK = "farandole-tensorflow-build:"
_COMPILERS = ("g++", "c++", "clang++")
_MAX_LINES_SHOWN = 20
_UNUSED_DAYS = 90  # a library that was not used for this time is deleted
_LEFT_BEHIND_DAYS = 1  # age at which temporary files of killed builds are deleted
# A process that waits this long for another process's build prints a message; a build takes 5 to 10 s.
_LONG_WAIT_SECONDS = 30


class Recipe:
    """How to build the op library for the TensorFlow of this process.

    The library names libfarandole only by SONAME. The package has already loaded libfarandole, and the loader reuses
    the loaded copy, wherever its file is. The same build therefore works with a wheel, a build tree and a
    distribution's package. With `-z now`, a missing symbol is an error when the op library is loaded, and not during a
    training step.

    mark: text in the library that identifies the recipe: TensorFlow's version and a digest.
    """

    def __init__(self, header_dir: Path, library: str):
        """library: path of libfarandole, whose file name is the SONAME; or the SONAME, which the linker finds."""
        import tensorflow as tf

        self.version = tf.version.VERSION
        self.source_dir = first_existing(_HERE / "source", _HERE.parents[3] / "ops" / "tensorflow" / "src")
        self.header_dir = header_dir
        self.library = library
        self.sources = sorted(self.source_dir.glob("*.cpp"))
        self._compile_flags = tf.sysconfig.get_compile_flags()
        self._link_flags = tf.sysconfig.get_link_flags()
        self.mark = f"{_MARK}{self.version}:{self._digest(tf.version.GIT_VERSION)}"
        self.was_built = False

    def _digest(self, git_version: str) -> str:
        """Digest of everything that determines the binary, except the compiler."""
        # Includes the machine type, because hosts of several types may share a home directory.
        facts = (git_version, os.path.basename(self.library), os.uname().machine)
        digest = hashlib.sha256("\0".join(facts).encode())
        for flag in self._compile_flags + self._link_flags:
            if not flag.startswith(("-I", "-L")):
                digest.update(flag.encode())
        headers = sorted(self.source_dir.glob("*.h"))
        for path in [*headers, *self.sources, *(self.header_dir / "farandole" / name for name in ("base.h", "engine.h"))]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:24]

    def file_name(self) -> str:
        return f"{_STEM}{self.version}.so"

    def fits(self, library: Path) -> bool:
        return library.exists() and self.mark.encode() in library.read_bytes()

    def command(self, compiler: List[str], output: Path) -> List[str]:
        # -isystem: no warnings about TensorFlow's headers.
        flags = [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in self._compile_flags]
        return [
            *compiler,
            *("-x", "c++", "-", "-x", "none", "-o", str(output), "-shared", "-fPIC", "-O2", "-DNDEBUG"),
            *("-fvisibility=hidden", "-Wall", "-Wextra", f"-I{self.source_dir}", f"-I{self.header_dir}"),
            *(f'-DFARANDOLE_TENSORFLOW_BUILD="{self.mark}"', *flags),
            *(*self._link_flags, self.library if "/" in self.library else f"-l:{self.library}", "-Wl,-z,now"),
        ]

    def build(self, compiler: List[str], output: Path, mode: int) -> None:
        """Builds the library and puts it in place atomically. mode: permissions of the file."""
        # A single translation unit, because TensorFlow's headers take most of the time.
        unit = "".join(f'#include "{source}"\n' for source in self.sources)
        output.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(output.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "it cannot be written", str(output.parent))
        # A random name: process ids are not unique across hosts and containers.
        temporary = output.with_name(f"{output.name}.{secrets.token_hex(8)}.tmp")
        command = self.command(compiler, temporary)
        _say(
            f"building the ops for TensorFlow {self.version} with {compiler[0]} (5 to 10 s, once) into {output.parent}"
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
        return (
            f"the op library of Farandole could not be built for TensorFlow {self.version} (it is known to work with "
            f"{supported()}):\n  {shown}\nThe command was: {shlex.join(command)}\n{_TO_USE_ONE_THAT_WORKS}"
        )


def _say(text: str) -> None:
    print(f"farandole: {text}", file=sys.stderr, flush=True)


def supported() -> str:
    return f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


_TO_USE_ONE_THAT_WORKS = (
    f'To use a TensorFlow that works: pip install "tensorflow>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"'
)


def why_not_tested(version: str) -> Optional[str]:
    """A warning about a TensorFlow that is newer than the tested versions; None for a tested version.

    Raises ImportError for an older version: the ops need features of TensorFlow 2.16 and Keras 3.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return f"TensorFlow calls its version '{version}', which Farandole cannot compare with those it works with"
    found = (int(numbers[1]), int(numbers[2]))
    if found < OLDEST:
        raise ImportError(
            f"Farandole works with TensorFlow {supported()}, and this is TensorFlow {version}. {_TO_USE_ONE_THAT_WORKS}"
        )
    if found > NEWEST:
        return f"TensorFlow {version} is newer than those that Farandole is tested with ({supported()})"
    return None


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


def need_compiler(version: str) -> List[str]:
    compiler = _compiler()
    if compiler is None:
        raise ImportError(
            f"this installation of Farandole has no op library for TensorFlow {version}, and there is no C++ compiler "
            "to build it with. To install one: apt-get install g++ (or: conda install gxx_linux-64)"
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
        f"{path} {what} (owner: user {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}), and the op library of "
        f"Farandole is code that is loaded from there: only this user (user {os.geteuid()}) may be able to write it. "
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
            _LONG_WAIT_SECONDS, _say, [f"still waiting for another process, which builds the ops and holds {path}"]
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
        library = directory / f"{_STEM}{recipe.version}_{recipe.mark[-16:]}.so"
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
        f"there is no place for the op library: neither {' nor '.join(reasons)}. To name one: export "
        "XDG_CACHE_HOME=<a directory that you can write, of a file system that allows to execute>"
    )


def _build_once(recipe: Recipe, library: Path) -> None:
    with _locked(library.with_suffix(".lock")):
        if not _is_cached(recipe, library):
            recipe.build(need_compiler(recipe.version), library, mode=0o700)
            _prune(library.parent, keep=library)


def _prune(directory: Path, keep: Path) -> None:
    """Deletes files other than `keep`: libraries that were not used for _UNUSED_DAYS, and temporary files of killed
    builds. A process that has loaded a deleted library keeps it until the process ends."""
    now = time.time()
    for path in directory.glob(f"{_STEM}*"):
        days = _LEFT_BEHIND_DAYS if path.suffix == ".tmp" else _UNUSED_DAYS
        with contextlib.suppress(OSError):
            if path.stem != keep.stem and now - path.lstat().st_mtime > days * 86400:
                path.unlink()


def _main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description="Builds the op library for the TensorFlow of this interpreter.")
    parser.add_argument("--header-dir", type=Path, required=True, help="directory that contains farandole/engine.h")
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
        print(_built_for(Recipe(options.header_dir.resolve(), options.library), options.output_dir))
    except (ImportError, OSError) as error:
        reason = _in_words(error)
        if not options.optional:
            print(f"no ops: {reason}", file=sys.stderr)
            return 1
        print(f"warning: no ops; the package will try again when it is imported: {reason}")
    return 0


def _built_for(recipe: Recipe, output_dir: Optional[Path]) -> Path:
    doubt = why_not_tested(recipe.version)
    if doubt is not None:
        _say(doubt)
    if output_dir is None:
        packaged = _HERE / "lib" / recipe.file_name()
        library = packaged if recipe.fits(packaged) else from_cache(recipe)
    else:
        library = output_dir / recipe.file_name()
        if not recipe.fits(library):
            recipe.build(need_compiler(recipe.version), library, mode=0o755)
    if not recipe.was_built:
        _say(f"the ops for TensorFlow {recipe.version} were there already")
    return library


def _in_words(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "tensorflow":
        return f"{sys.executable} has no TensorFlow. {_TO_USE_ONE_THAT_WORKS}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
