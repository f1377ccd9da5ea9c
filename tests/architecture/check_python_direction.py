#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_python_direction.py PACKAGE_DIRECTORY

Checks that imports inside a Python package have no cycles, imports inside functions included.
"""
import ast
import pathlib
import sys
from typing import Dict, List, Optional, Set


def imports_of(path: pathlib.Path, parents: List[str], package: str) -> Set[str]:
    """Names that a file imports from its own package, relative to it. `parents`: the package that the file is in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            words = node.module.split(".") if node.module else []
            if node.level:
                base = parents[:len(parents) - (node.level - 1)] + words
            elif words[:1] == [package]:
                base = words[1:]
            else:
                continue
            found |= {".".join(base)} | {".".join(base + [alias.name]) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name[len(package) + 1:] for alias in node.names if alias.name.split(".")[0] == package}
    return found


def read_modules(directory: pathlib.Path) -> Dict[str, Set[str]]:
    """What each module imports, by its name relative to the package. Packages themselves only collect names for users."""
    modules = {}
    for path in sorted(directory.rglob("*.py")):
        words = list(path.relative_to(directory).with_suffix("").parts)
        if words[-1] != "__init__":
            modules[".".join(words)] = imports_of(path, words[:-1], directory.name)
    return {name: {other for other in names if other in modules} for name, names in modules.items()}


def find_cycle(modules: Dict[str, Set[str]]) -> Optional[List[str]]:
    """The modules of one circle, in the order in which they import each other."""
    finished: Set[str] = set()

    def visit(name: str, way: List[str]) -> Optional[List[str]]:
        if name in way:
            return way[way.index(name):] + [name]
        if name in finished:
            return None
        for other in sorted(modules[name]):
            circle = visit(other, way + [name])
            if circle:
                return circle
        finished.add(name)
        return None

    for name in sorted(modules):
        circle = visit(name, [])
        if circle:
            return circle
    return None


def main() -> int:
    modules = read_modules(pathlib.Path(sys.argv[1]).resolve())
    if not modules:
        print(f"{sys.argv[1]} holds no module")
        return 2
    circle = find_cycle(modules)
    if circle:
        print("a circle of imports: " + " → ".join(circle))
        return 1
    print(f"the imports of {len(modules)} modules go one way")
    return 0


if __name__ == "__main__":
    sys.exit(main())
