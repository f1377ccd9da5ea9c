#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: compare_builds_test.py

Tests tests/bench/compare_builds.py on made-up samples, and on made-up builds whose farandole-bench is a script.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parent.parent / "bench"
sys.path.insert(0, str(BENCH))
import compare_builds  # noqa: E402

# Writes the microseconds of the file beside it as the figures of a job, to the file that --json names.
FAKE_BENCH = """#!/usr/bin/env bash
while [ "$1" != --json ]; do shift; done
[ -e "$(dirname "$0")/microseconds" ] || { echo 'no figures here'; exit 3; }
[ "$FARANDOLE_RANK" != 0 ] ||
  echo "[{\\"collective\\": \\"allreduce\\", \\"bytes\\": 4, \\"p50_us\\": $(cat "$(dirname "$0")/microseconds")}]" >"$2"
"""


def noisy(center, seed, share=0.01, count=9):
    draw = random.Random(seed)
    return [center * draw.uniform(1 - share, 1 + share) for _ in range(count)]


class Judge(unittest.TestCase):
    def word(self, before, again, after, allow=0.03):
        return compare_builds.judge(before, again, after, allow).word

    def test_the_same_is_nothing(self):
        self.assertEqual(self.word(noisy(1, 1), noisy(1, 2), noisy(1, 3)), "")

    def test_beyond_spread_and_allowance_is_slower(self):
        self.assertEqual(self.word(noisy(1, 1), noisy(1, 2), noisy(1.06, 3)), "slower")
        self.assertEqual(self.word(noisy(1, 1), noisy(1, 2), noisy(0.9, 3)), "faster")

    def test_within_the_allowance_is_nothing(self):
        self.assertEqual(self.word(noisy(1, 1, 0.001), noisy(1, 2, 0.001), noisy(1.025, 3, 0.001)), "")
        self.assertEqual(self.word(noisy(1, 1, 0.001), noisy(1, 2, 0.001), noisy(1.025, 3, 0.001), allow=0.01), "slower")

    def test_within_the_spread_is_nothing(self):
        # A machine with two modes, in both of which both builds run: the medians differ by 30 %.
        modes = [1.0, 1.3] * 5
        self.assertEqual(self.word(modes[:9], modes[1:], [1.3, 1.3, 1.0] * 3), "")


class Builds(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def build(self, name, microseconds):
        bench = self.directory / name / "bin" / "farandole-bench"
        bench.parent.mkdir(parents=True)
        bench.write_text(FAKE_BENCH)
        bench.chmod(0o755)
        if microseconds is not None:
            (bench.parent / "microseconds").write_text(str(microseconds))
        return bench.parent.parent

    def compare(self, before, after, *options):
        command = [sys.executable, BENCH / "compare_builds.py", "--rounds", "3", *options, before, after, "--op", "sum"]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)

    def test_a_slower_build_is_named_and_measured_twice(self):
        samples = self.directory / "samples.json"
        done = self.compare(self.build("before", 2.0), self.build("after", 3.0), "--json", samples)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("slower: farandole-bench: allreduce 4 B", done.stdout)
        lists = json.loads(samples.read_text())["farandole-bench: allreduce 4 B"]
        self.assertEqual([len(each) for each in lists], [6, 6, 6])

    def test_an_equal_build_is_not(self):
        done = self.compare(self.build("before", 2.0), self.build("after", 2.0))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("no case of 1 is slower", done.stdout)

    def test_a_program_that_fails_is_an_error(self):
        done = self.compare(self.build("before", 2.0), self.build("after", None))
        self.assertEqual(done.returncode, 2)
        self.assertIn("no figures here", done.stderr)

    def test_directory_without_a_build_is_refused(self):
        done = self.compare(self.directory, self.directory)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no build directory", done.stderr)


if __name__ == "__main__":
    unittest.main()
