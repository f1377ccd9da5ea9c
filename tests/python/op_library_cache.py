"""The cache of op libraries: nothing is loaded from where somebody else may have put it. One process, no TensorFlow."""

import contextlib
import importlib.util
import os
import stat
import tempfile
import unittest
from pathlib import Path
from unittest import mock

_SPEC = importlib.util.find_spec("farandole")


def _module():
    """_library.py by itself: the package around it imports TensorFlow."""
    path = Path(_SPEC.submodule_search_locations[0], "tensorflow", "_library.py")
    spec = importlib.util.spec_from_file_location("op_library", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


library = _module()


class _Recipe(library._Recipe):
    """Builds a file that holds the mark, and counts how often."""

    def __init__(self):
        self.version = "0.0"
        self.mark = "a mark"
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
            stack.enter_context(mock.patch.object(library, "_need_compiler", lambda version: ["/bin/true"]))
            self.addCleanup(os.umask, os.umask(0))
            self.addCleanup(stack.pop_all().close)
        self.directory = self.root / "farandole"
        self.recipe = _Recipe()

    def fetch(self):
        return library._from_cache(self.recipe)

    def refused(self, path, *parts):
        """An error names the path, its owner and mode, and what to do; nothing was built."""
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

    def test_a_directory_that_others_can_write(self):
        for mode in (0o777, 0o770, 0o707, 0o1777):
            self.directory.mkdir(exist_ok=True)
            self.directory.chmod(mode)
            self.refused(self.directory, f"mode {mode:04o}", "chmod go-w")

    def test_a_root_that_others_can_write(self):
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

    def test_a_file_that_others_can_write(self):
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

    def test_of_somebody_else(self):
        if os.getuid() != 0:
            self.skipTest("needs root, to give a directory away")
        self.directory.mkdir(mode=0o700)
        os.chown(self.directory, 12345, -1)
        self.refused(self.directory, "user 12345", "mode 0700")
        os.chown(self.directory, 0, -1)
        os.chown(self.root, 12345, -1)
        self.refused(self.root, "user 12345")

    def test_the_place_for_temporary_files_where_there_is_no_cache(self):
        (self.root / "file").touch()
        with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.root / "file")}):
            with mock.patch.object(tempfile, "gettempdir", lambda: str(self.root)):
                path = self.fetch()
        self.assertEqual(path.parent, self.root / f"farandole-{os.getuid()}")


if __name__ == "__main__":
    unittest.main()
