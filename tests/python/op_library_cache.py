# SPDX-License-Identifier: Apache-2.0
"""The cache of op libraries: no library is loaded from a directory that another user can write, no library is built if
a matching one exists, and unused libraries are removed. Needs no TensorFlow."""

import contextlib
import fcntl
import importlib.util
import io
import multiprocessing
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

from farandole import _files

_SPEC = importlib.util.find_spec("farandole")


def _module():
    """_op_library.py by itself: the package around it imports TensorFlow."""
    path = Path(_SPEC.submodule_search_locations[0], "tensorflow", "_op_library.py")
    spec = importlib.util.spec_from_file_location("op_library", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


library = _module()
cache = library.built_library


class _Recipe(library.Recipe):
    """Builds a file that holds the mark, and counts how often."""

    def __init__(self):
        self.version = "0.0"
        self.mark = "a mark that is long enough"
        self.built = 0

    def command(self, compiler, output):
        self.built += 1
        return ["/bin/sh", "-c", f"printf '%s' '{self.mark}' > '{output}'; chmod 777 '{output}'"]

    sources = ()


class CacheTest(unittest.TestCase):
    def setUp(self):
        with contextlib.ExitStack() as stack:
            self.root = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
            stack.enter_context(mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.root)}))
            stack.enter_context(mock.patch.object(cache, "need_compiler", lambda *_: ["/bin/true"]))
            self.addCleanup(os.umask, os.umask(0))
            self.addCleanup(stack.pop_all().close)
        self.directory = self.root / "farandole"
        self.recipe = _Recipe()

    def fetch(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                return library.from_cache(self.recipe)
            finally:
                self.said = said.getvalue()

    def refused(self, path, *parts):
        """An error names the path, its owner and mode, and the remedy; nothing was built."""
        with self.assertRaises(ImportError) as caught:
            self.fetch()
        for part in (str(path), f"user {path.lstat().st_uid}", "XDG_CACHE_HOME", *parts):
            self.assertIn(part, str(caught.exception))
        self.assertEqual(self.recipe.built, 0)

    def test_is_made_for_this_user_alone(self):
        path = self.fetch()
        self.assertEqual(path.read_text(), self.recipe.mark)
        self.assertEqual(stat.S_IMODE(self.directory.stat().st_mode), 0o700)
        for each in self.directory.iterdir():
            self.assertEqual(stat.S_IMODE(each.stat().st_mode) & 0o077, 0, each)
        self.assertEqual(self.fetch(), path)
        self.assertEqual(self.recipe.built, 1)

    def test_makes_the_cache_root(self):
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.root / "a" / "b")}):
            self.fetch()
        for each in ("a", "a/b"):
            self.assertEqual(stat.S_IMODE((self.root / each).stat().st_mode), 0o700)

    def test_directory_writable_by_other_users(self):
        for mode in (0o777, 0o770, 0o707, 0o1777):
            self.directory.mkdir(exist_ok=True)
            self.directory.chmod(mode)
            self.refused(self.directory, f"mode {mode:04o}", "chmod go-w")

    def test_root_writable_by_other_users(self):
        self.root.chmod(0o777)
        self.refused(self.root, "mode 0777", "chmod go-w")
        self.root.chmod(0o1777)  # as /tmp: nobody but its owner can replace what is in it
        self.fetch()

    def test_a_directory_that_is_a_link(self):
        (self.root / "elsewhere").mkdir(mode=0o700)
        self.directory.symlink_to(self.root / "elsewhere")
        self.refused(self.directory, "symbolic link")

    def test_a_root_that_is_a_link_of_its_owner(self):
        (self.root / "scratch").mkdir(mode=0o700)
        (self.root / "link").symlink_to(self.root / "scratch")
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.root / "link")}):
            self.fetch()
        self.assertTrue((self.root / "scratch" / "farandole").is_dir())

    def test_a_file_that_is_a_link(self):
        path = self.fetch()
        path.rename(self.root / "moved.so")
        path.symlink_to(self.root / "moved.so")
        self.recipe.built = 0
        self.refused(path, "symbolic link")

    def test_file_writable_by_other_users(self):
        path = self.fetch()
        path.chmod(0o606)
        self.recipe.built = 0
        self.refused(path, "mode 0606", "chmod go-w")

    def test_a_lock_that_is_a_link(self):
        path = self.fetch()
        lock = path.with_suffix(".lock")
        lock.unlink(missing_ok=True)
        target = self.root / "target"
        lock.symlink_to(target)
        path.unlink()
        self.recipe.built = 0
        self.refused(lock, "symbolic link")
        self.assertFalse(target.exists())

    def test_directory_of_another_user_is_refused(self):
        if os.getuid() != 0:
            self.skipTest("needs root, to give a directory away")
        self.directory.mkdir(mode=0o700)
        os.chown(self.directory, 12345, -1)
        self.refused(self.directory, "user 12345", "mode 0700")
        os.chown(self.directory, 0, -1)
        os.chown(self.root, 12345, -1)
        self.refused(self.root, "user 12345")

    def test_temporary_directory_if_there_is_no_cache(self):
        (self.root / "file").touch()
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.root / "file")}):
            with mock.patch.object(tempfile, "gettempdir", lambda: str(self.root)):
                path = self.fetch()
        self.assertEqual(path.parent, self.root / f"farandole-{os.getuid()}")

    def test_a_build_is_announced_in_one_line(self):
        self.fetch()
        line = f"farandole: building the ops for TensorFlow 0.0 with /bin/true (5 to 10 s, once) into {self.directory}\n"
        self.assertEqual(self.said, line)
        self.fetch()
        self.assertEqual(self.said, "")

    def test_matching_library_needs_no_compiler(self):
        path = self.fetch()
        with mock.patch.object(cache, "need_compiler", lambda *_: self.fail("the compiler is asked")):
            self.assertEqual(self.fetch(), path)

    def test_another_tensorflow_build_has_its_own_library(self):
        first = self.fetch()
        self.recipe.mark = "a mark of another build"
        self.assertNotEqual(self.fetch(), first)
        self.assertTrue(first.exists())

    def test_of_concurrent_processes_only_one_builds(self):
        count = self.root / "count"
        fork = multiprocessing.get_context("fork")
        start = fork.Barrier(4)
        processes = [fork.Process(target=_fetch_with, args=(start, self.recipe, count)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(30)
            self.assertEqual(process.exitcode, 0)
        self.assertEqual(count.read_text(), "built\n")

    def test_libraries_unused_for_long_are_removed(self):
        def make(name, days):
            path = self.directory / f"libfarandole_tensorflow_{name}"
            path.touch()
            os.utime(path, (0, time.time() - days * 86400))
            return path

        used = self.fetch()
        go = [make("2.16.2_a.so", 91), make("2.16.2_a.lock", 91), make("2.16.2_b.so.1.tmp", 2)]
        stay = [used, make("2.17.0_a.so", 89), make("2.17.0_b.so.1.tmp", 0)]
        os.utime(used, (0, 0))
        self.recipe.mark = "a mark of another build"
        other = self.fetch()
        self.assertFalse(used.exists(), "used last in 1970")
        self.assertEqual([path for path in go if path.exists()], [])
        self.assertEqual([path for path in (*stay[1:], other) if not path.exists()], [])

    def test_use_is_remembered(self):
        path = self.fetch()
        os.utime(path, (0, 0))
        self.fetch()
        self.assertLess(time.time() - path.stat().st_mtime, 3600)

    def test_a_matching_library_in_a_read_only_cache(self):
        path = self.fetch()
        with mock.patch.object(os, "access", lambda path, mode: False):
            self.assertEqual(self.fetch(), path)
        self.assertEqual(self.recipe.built, 1)

    def test_a_cache_that_cannot_be_written(self):
        self.directory.mkdir(mode=0o700)
        access = os.access
        with mock.patch.object(os, "access", lambda path, mode: Path(path) != self.directory and access(path, mode)):
            with mock.patch.object(tempfile, "gettempdir", lambda: str(self.root)):
                self.assertEqual(self.fetch().parent, self.root / f"farandole-{os.getuid()}")
        with mock.patch.object(os, "access", lambda path, mode: False):
            self.recipe.mark = "a mark of another build"
            with self.assertRaisesRegex(ImportError, f"{self.directory} .it cannot be written.*XDG_CACHE_HOME"):
                self.fetch()

    def test_long_waits_print_their_reason(self):
        lock = self.fetch().with_suffix(".lock")
        said, is_told = [], threading.Event()

        def say(text):
            said.append(text)
            is_told.set()

        with mock.patch.object(cache, "say", say), mock.patch.object(cache, "_LONG_WAIT_SECONDS", 0):
            with open(lock, "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                waiting = threading.Thread(target=self.hold, args=(lock,))
                waiting.start()
                self.assertTrue(is_told.wait(30))
            waiting.join(30)
        self.assertFalse(waiting.is_alive())
        self.assertIn(f"still waiting for another process, which builds a library and holds {lock}", said)

    def hold(self, lock):
        with cache._locked(lock):
            pass

    def test_a_file_system_that_executes_nothing(self):
        statvfs = os.statvfs

        def noexec(path):
            found = statvfs(path)
            return mock.Mock(f_flag=found.f_flag | (os.ST_NOEXEC if str(path).startswith(str(self.root)) else 0))

        with tempfile.TemporaryDirectory() as elsewhere, mock.patch.object(os, "statvfs", noexec):
            with mock.patch.object(tempfile, "gettempdir", lambda: elsewhere):
                self.assertEqual(self.fetch().parent.parent, Path(elsewhere))
            with mock.patch.object(tempfile, "gettempdir", lambda: str(self.root / "tmp")):
                with self.assertRaises(ImportError) as caught:
                    self.fetch()
        for part in (f"{self.directory} (its file system is mounted noexec", "XDG_CACHE_HOME", str(self.root / "tmp")):
            self.assertIn(part, str(caught.exception))


class KeyTest(unittest.TestCase):
    def mark(self, soname="libfarandole.so.0.1", version="2.20.0", git="v2.20.0", flags=("-DA=1",), machine="x86_64"):
        names = types.SimpleNamespace
        tensorflow = names(
            version=names(VERSION=version, GIT_VERSION=git),
            sysconfig=names(get_compile_flags=lambda: list(flags), get_link_flags=lambda: []),
        )
        with mock.patch.dict(sys.modules, {"tensorflow": tensorflow}):
            with mock.patch.object(os, "uname", lambda: names(machine=machine)):
                return library.Recipe(_files.header_dir(), f"/lib/{soname}").mark

    def test_versions_flags_and_machine_change_the_mark(self):
        others = [
            self.mark(soname="libfarandole.so.0.2"),
            self.mark(version="2.20.1"),
            self.mark(git="another build"),
            self.mark(flags=["-DA=2"]),
            self.mark(machine="aarch64"),
        ]
        self.assertEqual(len({self.mark(), *others}), 6)

    def test_paths_and_compiler_do_not_change_the_mark(self):
        with mock.patch.dict(os.environ, {"CXX": "another", "PATH": ""}):
            self.assertEqual(self.mark(flags=["-I/elsewhere", "-DA=1"]), self.mark())


def _fetch_with(start, recipe, count):
    """In a process of its own: waits for the others, then takes the library; says so in `count` if it builds."""
    build = recipe.build

    def building(*arguments, **options):
        with open(count, "a") as file:
            file.write("built\n")
        build(*arguments, **options)

    recipe.build = building
    start.wait(30)
    sys.stderr = io.StringIO()
    library.from_cache(recipe)


NOEXEC = """
mount -t tmpfs -o noexec,mode=0755 tmpfs "$1"
XDG_CACHE_HOME=$1 TMPDIR=$1 exec "$2" "$3" --fetch
"""


class MountTest(unittest.TestCase):
    def test_a_file_system_that_is_mounted_noexec(self):
        allowed = os.getuid() == 0 and shutil.which("unshare") is not None
        if not allowed or subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("needs root and mount name spaces")
        with tempfile.TemporaryDirectory() as directory:
            command = ["unshare", "--mount", "sh", "-ec", NOEXEC, "sh", directory, sys.executable, __file__]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        for part in (f"{directory}/farandole (its file system is mounted noexec", "XDG_CACHE_HOME="):
            self.assertIn(part, done.stderr)


class VersionTest(unittest.TestCase):
    def test_versions_that_are_tested(self):
        for version in ("2.16.2", "2.21.0", "2.21.0-rc1", "2.18.0-dev20250101"):
            self.assertIsNone(library.why_not_tested(version), version)

    def test_older_versions_are_refused(self):
        for version in ("2.15.1", "1.15.5"):
            with self.assertRaises(ImportError) as caught:
                library.why_not_tested(version)
            for part in (f"this is TensorFlow {version}", "2.16 to 2.21", 'pip install "tensorflow>=2.16,<2.22"'):
                self.assertIn(part, str(caught.exception))

    def test_newer_versions_are_named(self):
        for version in ("2.22.0", "3.0.0"):
            self.assertIn(f"TensorFlow {version} is newer", library.why_not_tested(version))
        self.assertIn("'unknown'", library.why_not_tested("unknown"))

    def test_the_extras_have_the_same_bounds(self):
        root = Path(__file__).resolve().parents[2]
        (low, high), newest = library.OLDEST, library.NEWEST
        bounds = f">={low}.{high},<{newest[0]}.{newest[1] + 1}"
        for file, distributions in (("pyproject.toml", ["", "-cpu"]), ("scripts/setup.sh", ["-cpu"])):
            found = re.findall(r"""["']tensorflow(-cpu)?(>=.*?)["']""", (root / file).read_text())
            self.assertEqual(found, [(distribution, bounds) for distribution in distributions], file)

    def test_old_tensorflow_is_refused_on_import(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "tensorflow.py").write_text("class version:\n    VERSION = '2.10.1'\n")
            path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
            done = subprocess.run(
                [sys.executable, "-c", "import farandole.tensorflow"], env={**os.environ, "PYTHONPATH": path},
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("Farandole works with TensorFlow 2.16 to 2.21, and this is TensorFlow 2.10.1", done.stderr)

    def test_newer_tensorflow_warns_on_the_first_rank(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "tensorflow.py").write_text("class version:\n    VERSION = '2.99.0-rc1'\n")
            path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
            for rank, count in ("0", 1), ("1", 0):
                done = subprocess.run(
                    [sys.executable, "-c", "import farandole.tensorflow"], capture_output=True, text=True, timeout=60,
                    env={**os.environ, "PYTHONPATH": path, "OMPI_COMM_WORLD_RANK": rank},
                )  # fmt: skip
                self.assertEqual(done.stderr.count("TensorFlow 2.99.0-rc1 is newer"), count, done.stderr)
                # It went on, to where this module has too little of TensorFlow.
                self.assertIn("No module named 'tensorflow.", done.stderr)


class BuildOpsTest(unittest.TestCase):
    """`python -m farandole.build_ops`, as far as it needs no TensorFlow."""

    def run_it(self, *arguments, **environment):
        command = [sys.executable, "-m", "farandole.build_ops", *arguments]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)

    def test_an_interpreter_that_is_not_there(self):
        done = self.run_it("--tensorflow", "2.16.2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no interpreter '2.16.2'", done.stderr)

    def test_an_interpreter_without_tensorflow(self):
        with tempfile.TemporaryDirectory() as directory:
            python = Path(directory, "python")
            python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
            python.chmod(0o755)
            done = self.run_it("--tensorflow", str(python))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "no ops: .*python.* has no TensorFlow. To use a TensorFlow that works: pip")
        self.assertNotIn("Traceback", done.stderr)

    def test_a_place_that_cannot_be_made(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "tensorflow.py").write_text(TENSORFLOW)
            Path(directory, "file").touch()
            path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
            done = self.run_it("--output-dir", f"{directory}/file/ops", PYTHONPATH=path)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"no ops: {directory}/file/ops: Not a directory", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_no_compiler(self):
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "tensorflow.py").write_text(TENSORFLOW)
            path = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
            done = self.run_it("--output-dir", f"{directory}/ops", PYTHONPATH=path, PATH="/nonexistent", CXX="")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("there is no C++ compiler to build it with. To install one: apt-get install g++", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


# The parts of TensorFlow that a recipe needs.
TENSORFLOW = """
class version:
    VERSION, GIT_VERSION = "2.20.0", "unknown"

class sysconfig:
    get_compile_flags = get_link_flags = staticmethod(lambda: [])
"""


if __name__ == "__main__":
    if sys.argv[1:] == ["--fetch"]:
        print(library.from_cache(_Recipe()))
    else:
        unittest.main()
