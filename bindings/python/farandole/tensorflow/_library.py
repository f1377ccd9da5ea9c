"""The op library: found, built where there is none, and loaded.

It is C++ against the classes of TensorFlow, so one works with exactly the TensorFlow that it was built for. The package
carries those of the TensorFlows that were there when it was built, and the source; for any other it is built at the
first import into a cache of the user (5 to 10 seconds, once).

As a program, `python _library.py --header-dir DIR OUTPUT_DIR` builds it for the TensorFlow of the interpreter that runs
it. It needs nothing else of the package then.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Optional

_HERE = Path(__file__).resolve().parent
_MARK = "farandole-tensorflow-build:"
_SUPPORTED = "2.16 to 2.21"
_COMPILERS = ("g++", "c++", "clang++")
_MOST_LINES_SHOWN = 20

_ops: Any = None
_path: Optional[Path] = None
_exports: Optional[ctypes.CDLL] = None
_allocator_is_registered: Optional[bool] = None


class _Recipe:
    """How the op library is built for the TensorFlow of this process.

    It is not linked with libfarandole.so but finds it in the process: the package loads that one first, with global
    symbols, so there is one copy whatever its file is called (its name differs between a wheel, a build tree and a
    distribution's package), and one binary serves all of them. A symbol that is missing is an error when the op library
    is loaded (`-z now`), not in the middle of a training step.
    """

    def __init__(self, header_dir: Path):
        import tensorflow as tf

        self.version = tf.version.VERSION
        self.source_dir = _first_existing(_HERE / "source", _HERE.parents[3] / "ops" / "tensorflow" / "src")
        self.header_dir = header_dir
        self.sources = sorted(self.source_dir.glob("*.cpp"))
        self._compile_flags = tf.sysconfig.get_compile_flags()
        self._link_flags = tf.sysconfig.get_link_flags()
        self.mark = f"{_MARK}{self.version}:{self._digest(tf.version.GIT_VERSION)}"

    def _digest(self, git_version: str) -> str:
        """Of everything that the binary depends on but the compiler."""
        digest = hashlib.sha256(git_version.encode())
        for flag in self._compile_flags + self._link_flags:
            if not flag.startswith(("-I", "-L")):
                digest.update(flag.encode())
        headers = sorted(self.source_dir.glob("*.h"))
        for path in [*headers, *self.sources, self.header_dir / "farandole" / "engine.h"]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:24]

    def file_name(self) -> str:
        return f"libfarandole_tensorflow_{self.version}.so"

    def fits(self, library: Path) -> bool:
        return library.exists() and self.mark.encode() in library.read_bytes()

    def command(self, compiler: List[str], output: Path) -> List[str]:
        # TensorFlow's headers are not ours to be warned about.
        flags = [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in self._compile_flags]
        return [
            *compiler,
            *("-x", "c++", "-", "-x", "none", "-o", str(output), "-shared", "-fPIC", "-O2", "-DNDEBUG"),
            *("-fvisibility=hidden", "-Wall", "-Wextra", f"-I{self.source_dir}", f"-I{self.header_dir}"),
            *(f'-DFARANDOLE_TENSORFLOW_BUILD="{self.mark}"', *flags),
            *(*self._link_flags, "-Wl,-z,now"),
        ]

    def build(self, compiler: List[str], output: Path, mode: int) -> None:
        """Writes the library to `output`, at once and whole, as a file of this mode."""
        # One translation unit: the headers of TensorFlow are most of the work.
        unit = "".join(f'#include "{source}"\n' for source in self.sources)
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
        command = self.command(compiler, temporary)
        try:
            done = subprocess.run(command, input=unit, capture_output=True, text=True)
            if done.returncode != 0:
                raise ImportError(self._failure(command, done.stderr))
            temporary.chmod(mode)
            os.replace(temporary, output)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()

    def _failure(self, command: List[str], errors: str) -> str:
        lines = errors.strip().splitlines()
        shown = "\n  ".join(lines[:_MOST_LINES_SHOWN])
        return (
            f"the op library of Farandole could not be built for TensorFlow {self.version} (it is known to work with "
            f"{_SUPPORTED}):\n  {shown}\nThe command was: {shlex.join(command)}\nTo use a TensorFlow that works: "
            'pip install "tensorflow>=2.16,<2.22"'
        )


def _first_existing(*paths: Path) -> Path:
    for path in paths:
        if path.exists():
            return path
    raise ImportError(f"none of {', '.join(map(str, paths))} exists; reinstall Farandole")


def _compiler() -> Optional[List[str]]:
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen and shutil.which(chosen[0]):
        return chosen
    return next(([name] for name in _COMPILERS if shutil.which(name)), None)


def _need_compiler(version: str) -> List[str]:
    compiler = _compiler()
    if compiler is None:
        raise ImportError(
            f"this installation of Farandole has no op library for TensorFlow {version}, and there is no C++ compiler "
            "to build it with. To install one: apt-get install g++ (or: conda install gxx_linux-64)"
        )
    return compiler


def _need_private(path: Path, status: os.stat_result, may_be_sticky: bool = False) -> None:
    """Raises ImportError if somebody but this user and root may have put, or may put, code there. In a sticky directory
    (/tmp) everybody can make files, but nobody can replace those of others."""
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
    """Makes a directory, and those above it that are missing, for this user alone."""
    if path.is_dir():
        return
    _make_private(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:  # another process was first; or it is a link to nowhere, which is refused
        if path.is_file():
            raise


def _cache_dir() -> Path:
    """A directory that only this user can write. What is in it need not be opened by a descriptor of it: nobody else
    can put another one in its place, because its parent is this user's too, or sticky. The parent may be a link."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for path in (Path(home, "farandole"), Path(tempfile.gettempdir(), f"farandole-{os.geteuid()}")):
        with contextlib.suppress(OSError):
            _make_private(path.parent)
            _need_private(path.parent, path.parent.stat(), may_be_sticky=True)
            _make_private(path)
            _need_private(path, path.lstat())
            if os.access(path, os.W_OK):
                return path
    raise ImportError(
        f"there is no place for the op library: neither {home} nor {tempfile.gettempdir()} can be written. To name "
        "one: export XDG_CACHE_HOME=<a directory that you can write>"
    )


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[IO[bytes]]:
    """A file of the cache. Raises ImportError if it is a link, or can be written by others."""
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
    """Holds a lock that other processes wait for. Where the file system has none, several build the same file, and
    each puts it in place whole."""
    with _opened(path, os.O_RDWR | os.O_CREAT) as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_cached(recipe: _Recipe, library: Path) -> bool:
    try:
        with _opened(library, os.O_RDONLY) as file:
            return recipe.mark.encode() in file.read()
    except FileNotFoundError:
        return False


def _from_cache(recipe: _Recipe) -> Path:
    compiler = _need_compiler(recipe.version)
    about = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    key = hashlib.sha256(f"{recipe.mark}{compiler}{about}".encode()).hexdigest()[:16]
    library = _cache_dir() / f"libfarandole_tensorflow_{recipe.version}_{key}.so"
    if not _is_cached(recipe, library):
        with _locked(library.with_suffix(".lock")):
            if not _is_cached(recipe, library):
                recipe.build(compiler, library, mode=0o700)
    return library


def _header_dir() -> Path:
    return _first_existing(_HERE.parent / "include", _HERE.parents[3] / "ops" / "engine" / "include")


def _find() -> Path:
    from .. import _engine  # noqa: F401: loads libfarandole.so

    recipe = _Recipe(_header_dir())
    packaged = _HERE / "lib" / recipe.file_name()
    return packaged if recipe.fits(packaged) else _from_cache(recipe)


def load() -> Any:
    """The module of ops (what `tf.load_op_library` gives). Builds the library if need be.

    Raises ImportError, with the command that would help.
    """
    global _ops, _path, _exports
    if _ops is None:
        import tensorflow as tf

        path = _find()
        try:
            ops = tf.load_op_library(str(path))
        except tf.errors.NotFoundError as error:
            raise ImportError(f"{path} does not fit TensorFlow {tf.version.VERSION}; delete it: {error}") from error
        if not hasattr(ops, "farandole_allreduce"):
            raise ImportError(f"{path} was loaded, but TensorFlow {tf.version.VERSION} sees no ops in it; delete it")
        _exports = ctypes.CDLL(str(path))
        _exports.farandole_tensorflow_register_allocator.restype = None
        _exports.farandole_tensorflow_memory.restype = None
        _ops, _path = ops, path
    return _ops


def register_allocator() -> bool:
    """Lets TensorFlow take large CPU tensors from windows: memory that all ranks of the host have mapped, so that
    collectives on them need no copy. Returns whether it does.

    That is possible only before TensorFlow has allocated its first tensor; later it would end the process. Then
    ordinary memory stays, and a line in the log says so. FARANDOLE_TENSORFLOW_WINDOWS=off turns it off.
    """
    global _allocator_is_registered
    if _allocator_is_registered is None:
        _allocator_is_registered = _register_allocator()
    return _allocator_is_registered


def _register_allocator() -> bool:
    from .. import _engine

    if os.environ.get("FARANDOLE_TENSORFLOW_WINDOWS", "on") == "off":
        return False
    load()
    if _context_is_initialized():
        _engine.log(
            "warning",
            "TensorFlow has allocated tensors before farandole.tensorflow was imported: tensors stay in ordinary "
            "memory, which collectives have to copy. Import farandole.tensorflow right after tensorflow",
        )
        return False
    _exports.farandole_tensorflow_register_allocator()
    return True


def _context_is_initialized() -> bool:
    """Whether TensorFlow may have allocated a tensor. True in doubt."""
    from tensorflow.python.eager import context

    # There is no public question for it; `tf.config` raises from some setters when the context is initialized.
    return getattr(context.context(), "_context_handle", True) is not None


def pending() -> int:
    """Number of collectives of TensorFlow that have begun and have not ended."""
    return 0 if _exports is None else _exports.farandole_tensorflow_pending()


def memory() -> Dict[str, int]:
    """Bytes of large CPU tensors: in use and kept for later, in windows and in ordinary memory, and the most that is
    kept. All zero where the allocator is not registered."""
    names = ("windows_in_use", "windows_kept", "ordinary_in_use", "ordinary_kept", "limit")
    figures = (ctypes.c_int64 * len(names))()
    if _allocator_is_registered:
        _exports.farandole_tensorflow_memory(figures)
    return dict(zip(names, figures))


def describe() -> Dict[str, Any]:
    """What was found and chosen."""
    return {"path": _path and str(_path), "windows": bool(_allocator_is_registered), **memory()}


def _main(arguments: List[str]) -> None:
    import argparse

    parser = argparse.ArgumentParser(description="Builds the op library for the TensorFlow of this interpreter.")
    parser.add_argument("--header-dir", type=Path, required=True, help="directory that contains farandole/engine.h")
    parser.add_argument("--optional", action="store_true", help="only warn if it can not be built")
    parser.add_argument("output_dir", type=Path)
    options = parser.parse_args(arguments)
    recipe = _Recipe(options.header_dir.resolve())
    library = options.output_dir / recipe.file_name()
    try:
        if not recipe.fits(library):
            recipe.build(_need_compiler(recipe.version), library, mode=0o755)
    except ImportError as error:
        if not options.optional:
            raise
        print(f"warning: no ops for TensorFlow {recipe.version}; the package will try again when it is imported: {error}")
        return
    print(library)


if __name__ == "__main__":
    _main(sys.argv[1:])
