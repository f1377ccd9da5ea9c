# SPDX-License-Identifier: Apache-2.0
"""Tests of blocks.py: marks are parsed, and outputs that differ are found."""

import tempfile
import unittest
from pathlib import Path

import blocks

PAGE = """\
A text with `<!-- run -->` in a line.

<!-- file: a.py, needs numpy -->
```python
print(1)
```

<!-- run: any order, needs numpy -->
```
$ python a.py \\
    --verbose
1
$ python a.py
1
```

```
not marked
```
"""


def parsed(text: str) -> "list[blocks.Block]":
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory) / "page.md"
        page.write_text(text)
        return blocks.parse(page)


class MarksTest(unittest.TestCase):
    def test_finds_blocks_with_marks_and_options(self) -> None:
        saved, run, unmarked = parsed(PAGE)
        self.assertEqual((saved.kind, saved.options, saved.lines), ("file", ["a.py", "needs numpy"], ["print(1)"]))
        self.assertEqual((run.kind, run.options, run.value("needs")), ("run", ["any order", "needs numpy"], "numpy"))
        self.assertEqual((run.value("in"), run.values("needs")), ("", ["numpy"]))
        self.assertEqual((unmarked.kind, unmarked.lines), ("", ["not marked"]))
        self.assertEqual(saved.first, PAGE.splitlines().index("print(1)"))

    def test_cuts_a_session_into_commands_and_outputs(self) -> None:
        first, second = blocks.session(parsed(PAGE)[1].lines)
        self.assertEqual((first.text, first.output, first.first), ("python a.py \\\n    --verbose", ["1"], 2))
        self.assertEqual((second.text, second.output, second.first), ("python a.py", ["1"], 4))
        self.assertEqual(blocks.session(["python a.py"]), [])

    def test_rejects_unknown_options(self) -> None:
        with self.assertRaisesRegex(ValueError, "page.md:1: there is no option 'numers' of the mark 'output'"):
            parsed("<!-- output: numers -->\n```\n1\n```\n")

    def test_rejects_marks_without_a_block(self) -> None:
        with self.assertRaisesRegex(ValueError, "page.md:1: a mark must stand directly above a code block"):
            parsed("<!-- run -->\n\n```\ntrue\n```\n")


class DifferenceTest(unittest.TestCase):
    def check(self, expected: str, actual: str, options: str, difference: str = "") -> None:
        chosen = [each for each in options.split(",") if each]
        found = blocks.difference(expected.split("|"), actual.split("|"), chosen)
        self.assertRegex(found, difference or "^$")

    def test_compares_lines_in_order(self) -> None:
        self.check("a|b", "a|b", "")
        self.check("a|b", "a|c", "", "expected the line 'b', got 'c'")
        self.check("a|b", "a", "", "expected the line 'b', got no line")
        self.check("a", "a|b", "", "expected other lines")
        self.check("a.c", "abc", "", "expected the line 'a.c', got 'abc'")

    def test_an_ellipsis_is_any_text_or_any_lines(self) -> None:
        self.check("build … x", "build 0.1-abc x", "")
        self.check("a|…|d", "a|b|c|d", "")
        self.check("a|…|d", "a|d", "")
        self.check("a|…|d", "a|b|c", "", "expected")

    def test_numbers_may_differ_with_their_units(self) -> None:
        self.check("loss 0.25   3 ms", "loss 1e-3 17 us", "numbers")
        self.check("checksum d55fb7e0", "checksum 0e015e6a", "numbers")
        self.check("loss 0.25", "accuracy 0.25", "numbers", "expected the line")
        self.check("loss 0.25", "loss 0.3", "", "expected the line")

    def test_lines_may_come_in_any_order(self) -> None:
        self.check("a|b", "b|a", "any order")
        self.check("a|b", "b|b", "any order", "expected a line 'a'")
        self.check("a", "b|a", "any order", "got the unexpected line 'b'")
        self.check("a|…", "b|a", "any order")

    def test_wrapped_lines_are_joined(self) -> None:
        self.check("one two|three", "one two three", "wrapped")
        self.check("one two|three", "one two four", "wrapped", "expected the line")


class VisibleTest(unittest.TestCase):
    def test_shows_what_a_terminal_shows(self) -> None:
        self.assertEqual(blocks.visible("10 %\r 20 %\n\x1b[1mbold\x1b[0m \nab\b\bc\n\n"), [" 20 %", "bold", "cb"])


if __name__ == "__main__":
    unittest.main()
