# SPDX-License-Identifier: Apache-2.0
"""The op library of a package that contains none: built ahead by build_ops, and loaded later without a compiler."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SECONDS = 300

USE = """
import tensorflow as tf
import farandole.tensorflow as farandole
farandole.init()
assert float(farandole.allreduce(tf.constant(3.0))) == 3.0
print(farandole.info()["tensorflow_ops"]["path"])
"""


class WarmTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        package = Path(importlib.util.find_spec("farandole").submodule_search_locations[0])
        libraries = (str(package), str(package / "tensorflow"))
        shutil.copytree(
            package, self.root / "python" / "farandole", ignore=lambda path, _: ["lib"] if path in libraries else []
        )
        (self.root / "python" / "farandole" / "lib").symlink_to(package / "lib", target_is_directory=True)
        (self.root / "cache").mkdir(mode=0o700)
        (self.root / "bin").mkdir()
        without_compiler = {name: value for name, value in os.environ.items() if name != "CXX"}
        self.environment = {
            **without_compiler,
            "PYTHONPATH": str(self.root / "python"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "PATH": str(self.root / "bin"),
        }

    def run_it(self, *arguments, **environment):
        return subprocess.run(
            [sys.executable, *arguments], env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip

    def test_built_ahead(self):
        cold = self.run_it("-c", USE)
        self.assertNotEqual(cold.returncode, 0)
        self.assertIn("there is no C++ compiler to build it with", cold.stderr)

        built = self.run_it("-m", "farandole.build_ops", PATH=os.environ["PATH"])
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertIn("farandole: building the ops for TensorFlow", built.stderr)
        library = built.stdout.strip()
        self.assertEqual(Path(library).parent, self.root / "cache" / "farandole")

        again = self.run_it("-m", "farandole.build_ops")
        self.assertEqual((again.returncode, again.stdout.strip()), (0, library), again.stderr)
        self.assertNotIn("building", again.stderr)
        self.assertIn("was there already", again.stderr)

        warm = self.run_it("-c", USE)
        self.assertEqual(warm.returncode, 0, warm.stderr)
        self.assertEqual(warm.stdout.split()[-1], library)
        self.assertNotIn("building", warm.stderr)

        needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
        self.assertIn("[libfarandole.so.", needed)


if __name__ == "__main__":
    if importlib.util.find_spec("tensorflow") is None:
        print("skipped: no TensorFlow")
        sys.exit(77)
    unittest.main()
