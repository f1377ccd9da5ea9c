#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_sizes.py SOURCE_DIRECTORY | check_sizes.py --self-test

Checks that no function is longer than 60 lines, and no class has more than 15 data members, unless a comment says why. The
check reads C and C++ as text, so it needs no compiler. It counts lines as clang-tidy does, from the brace that opens the
body to the brace that closes it; in Python from `def` to the end, without the docstring.

A larger function or class says why where it begins:
    SettingRows core_settings() {  // NOLINT(readability-function-size): a table
    /// All settings of a process. More than 15 members: one for each variable.
"""
import ast
import pathlib
import re
import sys
from typing import Iterator, List, NamedTuple, Optional

MOST_LINES = 60
MOST_MEMBERS = 15
DIRECTORIES = ("core", "collectives", "ops", "bindings")
SUFFIXES = (".h", ".cpp", ".c", ".cu", ".cuh", ".py")
LARGE_FUNCTION = re.compile(r"NOLINT\(readability-function-size\): \S")
LARGE_CLASS = re.compile(r"\bMore than 15 members: \S")

# Comments, strings and preprocessor lines, which do not count as code.
NO_CODE = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|(?:u8|[uUL])?R"(?P<end>[^()\\ \n]*)\(.*?\)(?P=end)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|^[ \t]*\#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE)
PARENTHESES = re.compile(r"\([^()]*\)|\[[^][]*\]")
ANGLES = re.compile(r"(?<=[\w>])<[^<>;]*>")
BRACES = re.compile(r"\{[^{}]*\}")
ACCESS = re.compile(r"\s*(public|private|protected)\s*")
ENDS_FUNCTION = re.compile(r"\)\s*(const|noexcept|override|final|try|->[\s\w:<>*&]+|\s)*$")
NO_MEMBER = re.compile(
    r"(using|typedef|friend|static|template|enum|extern|static_assert)\b|.*\boperator\b|(class|struct|union) +\w+$")


class Size(NamedTuple):
    first_line: int  # of the declaration
    line: int  # of the brace
    name: str
    lines: int = 0  # of a function
    members: int = 0  # of a class


class Scope(NamedTuple):
    kind: str
    head: str  # the text before its brace
    first_line: int
    line: int
    members: List[int]


def without_no_code(text: str) -> str:
    """The text with comments, literals and directives blanked out, line by line as it was."""
    def blank(match: "re.Match[str]") -> str:
        word = match.group()
        return re.sub(r"[^\n]", " ", word) if word.lstrip()[0] in "/#" else '""' + "\n" * word.count("\n")
    return NO_CODE.sub(blank, text)


def folded(head: str, *patterns: "re.Pattern[str]") -> str:
    """A declaration without what the patterns match, from the inside out."""
    for pattern in patterns:
        before = ""
        while before != head:
            before, head = head, pattern.sub("", head)
    return head


def kind_of(head: str, in_function: bool) -> str:
    """What the brace behind `head` opens: a namespace, class, function, or some other block."""
    head = re.sub(r"\btemplate\s+<", "template<", head)
    plain = re.sub(r"\btemplate\b", "", folded(head, PARENTHESES, ANGLES)).strip()
    if re.match(r'(inline )?namespace\b|extern\s*""$', plain):
        return "namespace"
    if re.match(r"(typedef )?(class|struct|union)\b", plain) and "=" not in plain:
        if "alignas" in head or not ENDS_FUNCTION.search(head):
            return "class"
    if in_function or "(" not in head or "=" in re.sub(r"operator\s*\S+|[=!<>]=", "", plain):
        return "block"
    # A member that a constructor initialises with braces.
    is_initialised = re.search(r"(^|[^:]):[^:].*[\w>]\s*$", plain, re.DOTALL) and not ENDS_FUNCTION.search(head)
    return "block" if is_initialised else "function"


def members_in(declaration: str) -> int:
    """The number of data members that a declaration of a class makes; initialisers in braces are `{}`."""
    declaration = re.sub(r"\s+", " ", declaration).strip()
    declaration = re.sub(r"^((\[\[.*?\]\]|alignas ?\([^)]*\)|mutable|const|volatile) ?)+", "", declaration)
    if not declaration or NO_MEMBER.match(declaration):
        return 0
    plain = re.sub(r"\( ?\*.*?\) ?\(.*?\)", " pointer", folded(declaration, ANGLES))  # to a function
    before_value = re.split(r"(?<![=!<>])=(?!=)|\{", plain)[0]
    if "(" in re.sub(r"alignas ?\([^)]*\)", "", before_value):
        return 0
    return folded(plain, PARENTHESES, BRACES).count(",") + 1


def name_of(head: str) -> str:
    head = re.sub(r"^\s*template\b", "", folded(re.sub(r"\btemplate\s+<", "template<", head), ANGLES))
    is_type = re.search(r"\b(?:class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*|FARANDOLE_API\s+)?([\w:]+)", head)
    function = re.search(r"([\w:~]+|operator *\S+)\s*\(", head)
    found = function if function and not re.match(r"\s*(class|struct|union)\b", head) else is_type
    return found.group(1) if found else "(no name)"


def sizes_in_cpp(text: str) -> Iterator[Size]:
    head, first_line, line = "", 1, 1
    scopes: List[Scope] = []
    functions = 0  # open ones

    def starts_object() -> bool:
        return bool(scopes) and scopes[-1].kind == "class"

    for char in without_no_code(text):
        if char == "\n":
            line += 1
        if char == "{":
            kind = kind_of(head, functions > 0)
            functions += kind == "function"
            scopes.append(Scope(kind, head, first_line, line, []))
            head = ""
        elif char == "}" and scopes:
            scope = scopes.pop()
            if scope.kind == "function":
                functions -= 1
                yield Size(scope.first_line, scope.line, name_of(scope.head), lines=line - scope.line)
            if scope.kind == "class":
                yield Size(scope.first_line, scope.line, name_of(scope.head), members=sum(scope.members))
            # An initialiser goes on with its declaration, and a class with the names of its objects; a body ends.
            goes_on = scope.kind == "block" and functions == 0
            head, first_line = (scope.head + "{}", scope.first_line) if goes_on else ("", line)
            if scope.kind == "class" and starts_object():
                head = "struct made "
        elif char == ";" or (char == ":" and ACCESS.fullmatch(head)):
            if starts_object() and char == ";" and head.strip() != "struct made":
                scopes[-1].members.append(members_in(head))
            head = ""
        else:
            if not head.strip() and not char.isspace():
                first_line = line
            head += char


def sizes_in_python(text: str) -> Iterator[Size]:
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or line) - line + 1
            if ast.get_docstring(node, clean=False) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            yield Size(line, line, node.name, lines=length)
        elif isinstance(node, ast.ClassDef):
            set_ones = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
                        and isinstance(each.ctx, ast.Store) and isinstance(each.value, ast.Name) and each.value.id == "self"}
            yield Size(line, line, node.name, members=len(set_ones))


def comment_of(lines: List[str], size: Size) -> str:
    """The comment above a declaration, and its own lines up to the brace."""
    first = size.first_line - 1
    while first > 0 and lines[first - 1].lstrip().startswith(("/", "*", "#")):
        first -= 1
    return " ".join(re.sub(r"^\s*(///?|#)", "", line) for line in lines[first:size.line])


def complaint(size: Size, comment: str) -> Optional[str]:
    comment = re.sub(r"\s+", " ", comment)
    if size.lines > MOST_LINES and not LARGE_FUNCTION.search(comment):
        return f"{size.name} has {size.lines} lines, more than {MOST_LINES}: split it"
    if size.members > MOST_MEMBERS and not LARGE_CLASS.search(comment):
        return f"{size.name} has {size.members} data members, more than {MOST_MEMBERS}: split it, or say why not"
    return None


def complaints(text: str, is_python: bool) -> Iterator[str]:
    lines = text.split("\n")
    for size in sizes_in_python(text) if is_python else sizes_in_cpp(text):
        found = complaint(size, comment_of(lines, size))
        if found:
            yield f"{size.line}: {found}"


def self_test() -> int:
    """Whether the check finds what is too large, and nothing else, in samples with what C++ and Python may hold."""
    body = "\n".join(["  run();"] * 61)
    members = "\n".join([f"  std::map<int, Pair<int, int>> a{n}_{{1, 2}}, *b{n}_ = nullptr;" for n in range(8)])
    samples = [
        (f"void long_one(int x) {{\n{body}\n}}", "long_one has 62 lines"),
        (f"void table() {{  // NOLINT(readability-function-size): a table\n{body}\n}}", None),
        (f"void of_60() {{\n{body[: body.rindex(chr(10), 0, -10)]}\n}}", None),
        (f"template <class T>\nT Box<T>::get() const noexcept {{\n{body}\n}}", "Box::get has 62 lines"),
        (f"Box::Box() : a_{{1}}, b_(\"}}\"), c_{{'{{'}} {{\n{body}\n}}", "Box::Box has 62 lines"),
        (f"const auto kRows = std::array{{\n{body}\n}};", None),
        (f"namespace a {{ /* {{ */\n// {{\n#define OPEN {{\n{body}\n}}", None),
        (f"class FARANDOLE_API Large final : public Base<int> {{\n public:\n{members}\n}};", "Large has 16 data members"),
        (f"/// As it is. More than\n/// 15 members: one for each row.\nstruct Large {{\n{members}\n}};", None),
        ("struct Fifteen {\n int a, b, c{1}, d[2], e = f(1, 2);\n void (*g)(int, int);\n std::function<void(int, int)> h;\n"
         " static constexpr int kNone = 0;\n bool operator==(const Fifteen&) const = default;\n int run(int, int) const;\n"
         " enum class Kind { kA, kB };\n struct Inner { int x, y; } i;\n union { int j; float k; };\n int l : 3 = 1;\n"
         " Map<int, int> m, n, o;\n const int p = 0; Pair<int> q{{1, 2}, 3}, r;\n@};", None),
        ("def long_one(a):\n" + "    run()\n" * 60, "long_one has 61 lines"),
        ('def documented(a):\n    """' + "\n" * 30 + '"""\n' + "    run()\n" * 59, None),
        ("class Large:\n def __init__(self):\n" + "".join(f"  self.a{n} = 1\n" for n in range(16)), "Large has 16 data members"),
    ]
    # One more is too much: so it has 15.
    fifteen = next(text for text, _ in samples if "Fifteen" in text)
    samples = [(text.replace("@", ""), expected) for text, expected in samples]
    samples.append((fifteen.replace("@", " int s;\n"), "Fifteen has 16 data members"))
    failures = 0
    for text, expected in samples:
        found = list(complaints(text, text.startswith(("def", "class Large:"))))
        if (expected is None and found) or (expected is not None and not (len(found) == 1 and expected in found[0])):
            print(f"expected {expected}, found {found}, in:\n{text[:300]}\n")
            failures += 1
    print(f"{len(samples) - failures} of {len(samples)} samples are judged right")
    return int(failures > 0)


def main() -> int:
    if sys.argv[1] == "--self-test":
        return self_test()
    root = pathlib.Path(sys.argv[1])
    files = [each for directory in DIRECTORIES for each in sorted((root / directory).rglob("*")) if each.suffix in SUFFIXES]
    if not files:
        print(f"{root} holds no sources")
        return 2
    found = [f"{path.relative_to(root)}:{text}" for path in files
             for text in complaints(path.read_text(encoding="utf-8"), path.suffix == ".py")]
    print("\n".join(found) if found else f"the functions and classes of {len(files)} sources are small enough")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
