# SPDX-License-Identifier: Apache-2.0
"""Parses marked code blocks of Markdown pages, and compares outputs. docs/testing.md describes the marks."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

KINDS = ("run", "output", "file", "compile", "not run")
OPTIONS = ("any order", "numbers", "wrapped", "stderr", "fails")
OPTIONS_WITH_VALUE = ("in", "needs", "ranks")
ANYTHING = "…"

_MARK = re.compile(r"<!-- ([a-z ]+?)(?:: (.*?))? -->")
_FENCE = re.compile(r"```(\w*)")
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A checksum of eight hexadecimal digits, or a number and its unit.
_NUMBER = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{8}\b|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?: ?(?:ns|us|µs|ms|s|min)\b)?")


@dataclass
class Block:
    """A code block of a page. `kind` is that of the mark above the block, or empty."""

    page: Path
    first: int  # index of the block's first line of text among the lines of the page
    lines: List[str]
    language: str
    kind: str = ""
    options: List[str] = field(default_factory=list)  # of a file: its names; of `not run`: the reason

    def place(self) -> str:
        return f"{self.page}:{self.first}"

    def values(self, option: str) -> List[str]:
        """What follows each `option` of the mark, for example "tensorflow" of "needs tensorflow"."""
        if self.kind == "not run":
            return []
        return [each[len(option) + 1 :] for each in self.options if each.startswith(option + " ")]

    def value(self, option: str) -> str:
        """What follows `option`; empty without this option."""
        return next(iter(self.values(option)), "")


@dataclass
class Command:
    """A command of a session, which is a block of lines `$ COMMAND`, each followed by the output."""

    text: str
    first: int  # index of the output's first line in the block
    output: List[str]


def _parse_mark(line: str, place: str) -> "tuple[str, List[str]]":
    match = _MARK.fullmatch(line.strip())
    if not match or match.group(1) not in KINDS:
        return "", []
    kind, rest = match.group(1), match.group(2) or ""
    if kind == "not run":
        return kind, [rest]
    options = [each.strip() for each in rest.split(",") if each.strip()]
    for option in options:
        known = option in OPTIONS or option.split(" ")[0] in OPTIONS_WITH_VALUE
        if not known and kind != "file":
            raise ValueError(f"{place}: there is no option '{option}' of the mark '{kind}'")
    return kind, options


def parse(page: Path) -> List[Block]:
    """The code blocks of a page, in order. Raises ValueError for unknown options and for marks without a block."""
    lines = page.read_text(encoding="utf-8").splitlines()
    blocks: List[Block] = []
    fence_at: Optional[int] = None
    for number, line in enumerate(lines):
        if fence_at is None and (match := _FENCE.fullmatch(line)):
            fence_at = number
            above = lines[number - 1] if number else ""
            kind, options = _parse_mark(above, f"{page}:{number}")
            blocks.append(Block(page, number + 1, [], match.group(1), kind, options))
        elif fence_at is not None and line == "```":
            blocks[-1].lines = lines[fence_at + 1 : number]
            fence_at = None
        elif fence_at is None and _parse_mark(line, f"{page}:{number + 1}")[0]:
            if number + 1 == len(lines) or not lines[number + 1].startswith("```"):
                raise ValueError(f"{page}:{number + 1}: a mark must stand directly above a code block")
    return blocks


def session(lines: List[str]) -> List[Command]:
    """The commands of a session; empty if the block is a script without outputs."""
    commands: List[Command] = []
    continued = False
    for number, line in enumerate(lines):
        if continued:
            commands[-1].text += "\n" + line
            commands[-1].first = number + 1
            continued = line.endswith("\\")
        elif line.startswith("$ "):
            commands.append(Command(line[2:], number + 1, []))
            continued = line.endswith("\\")
        elif commands:
            commands[-1].output.append(line)
    return commands


def visible(output: str) -> List[str]:
    """The lines that a terminal would show: without escape sequences, backspaces and overwritten text."""
    lines = []
    for line in _ESCAPE_SEQUENCE.sub("", output).split("\n"):
        shown: List[str] = []
        column = 0
        for letter in line.rstrip("\r"):
            if letter == "\r":
                column = 0
            elif letter == "\b":
                column = max(0, column - 1)
            else:
                shown[column : column + 1] = [letter]
                column += 1
        lines.append("".join(shown).rstrip())
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _without_numbers(line: str) -> str:
    return re.sub(r"\s+", " ", _NUMBER.sub("#", line)).strip()


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split(ANYTHING))


def _first_difference(expected: List[str], actual: List[str]) -> str:
    for number, line in enumerate(expected):
        if line.strip() == ANYTHING:
            break
        if number >= len(actual) or not re.fullmatch(_pattern(line), actual[number]):
            return f"expected the line '{line}', got " + (f"'{actual[number]}'" if number < len(actual) else "no line")
    return "expected other lines"


def _any_order_difference(expected: List[str], actual: List[str]) -> str:
    left = list(actual)
    for line in expected:
        if line.strip() == ANYTHING:
            continue
        match = next((each for each in left if re.fullmatch(_pattern(line), each)), None)
        if match is None:
            return f"expected a line '{line}'"
        left.remove(match)
    if left and not any(line.strip() == ANYTHING for line in expected):
        return f"got the unexpected line '{left[0]}'"
    return ""


def difference(expected: List[str], actual: List[str], options: List[str]) -> str:
    """The first difference between a page's output and the real one, or an empty string."""
    expected = [line.rstrip() for line in expected]
    if "wrapped" in options:
        expected, actual = ([" ".join(" ".join(lines).split())] for lines in (expected, actual))
    if "numbers" in options:
        expected, actual = ([_without_numbers(line) for line in lines] for lines in (expected, actual))
    if "any order" in options:
        return _any_order_difference(expected, actual)
    pattern = "".join("(?:.*\n)*?" if line.strip() == ANYTHING else _pattern(line) + "\n" for line in expected)
    if re.fullmatch(pattern, "".join(line + "\n" for line in actual)):
        return ""
    return _first_difference(expected, actual)
