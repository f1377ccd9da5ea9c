#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that libraries export every symbol that programs need to use the declarations of the public headers.

usage: exported_api.py --compiler CLANG --include DIRECTORY [--include …] LIBRARY…

Clang reads all headers below the DIRECTORIES and lists their declarations with mangled names. The dynamic symbols of the
LIBRARIES must contain all functions, methods, constructors, variables and virtual tables that the headers only declare, and
the float and double instances of templates that the sources define. Of private functions, they must contain those that an
inline function of the headers calls.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

SCALARS = ("float", "double")
FUNCTIONS = {"FunctionDecl", "CXXMethodDecl", "CXXConstructorDecl", "CXXDestructorDecl", "CXXConversionDecl"}
SCOPES = {"NamespaceDecl", "LinkageSpecDecl", "CXXRecordDecl", "ClassTemplateSpecializationDecl"}
BODIES = {"CompoundStmt", "CXXTryStmt"}
NOT_IN_A_LIBRARY = ("isImplicit", "pure", "explicitlyDeleted", "explicitlyDefaulted")


def inner(node: dict) -> list[dict]:
    return node.get("inner", [])


def has_body(function: dict) -> bool:
    return any(part["kind"] in BODIES for part in inner(function))


def is_left_to_library(function: dict) -> bool:
    return not has_body(function) and not any(function.get(flag) for flag in NOT_IN_A_LIBRARY)


def references(node: dict) -> Iterator[str]:
    """Identities of all that the bodies below this node use."""
    if "referencedMemberDecl" in node:
        yield node["referencedMemberDecl"]
    if "referencedDecl" in node:
        yield node["referencedDecl"]["id"]
    for part in inner(node):
        yield from references(part)


class Declarations:
    """What the headers leave to the libraries."""

    def __init__(self, nodes: Iterator[dict]) -> None:
        self.symbols: dict[str, str] = {}  # mangled name: what people call it
        self.function_templates: set[tuple[str, str]] = set()  # name and type, which tells overloads apart
        self.class_templates: set[str] = set()
        self._defined: set[str] = set()  # declared in one place of the headers, and defined in another
        self._private: dict[str, str] = {}  # identity in the syntax tree: mangled name
        self._used: set[str] = set()  # identities that inline functions refer to
        for node in nodes:
            self._walk([node], "")
            self._used.update(references(node))
        unreachable = {symbol for identity, symbol in self._private.items() if identity not in self._used}
        for symbol in self._defined | unreachable:
            self.symbols.pop(symbol, None)

    def _walk(self, nodes: list[dict], scope: str, access: str = "public") -> None:
        for node in nodes:
            kind = node["kind"]
            name = "::".join(filter(None, (scope, node.get("name", ""))))
            if kind == "AccessSpecDecl":
                access = node["access"]
            elif kind in FUNCTIONS:
                self._add_function(node, name)
                if access == "private":
                    self._private[node["id"]] = node["mangledName"]
            elif kind == "VarDecl":
                self._add_variable(node, name)
            elif kind == "FunctionTemplateDecl":
                self._add_function_template(node, name)
            elif kind == "ClassTemplateDecl":
                self._add_class_template(node, name)
            elif kind in SCOPES:
                self._add_virtual_table(node, name)
                self._walk(inner(node), name, "private" if node.get("tagUsed") == "class" else "public")

    def _add_function(self, function: dict, name: str) -> None:
        if has_body(function):
            self._defined.add(function["mangledName"])
        elif is_left_to_library(function):
            self.symbols[function["mangledName"]] = name

    def _add_variable(self, variable: dict, name: str) -> None:
        if variable.get("storageClass") in ("extern", "static") and not variable.get("inline") and "init" not in variable:
            self.symbols[variable["mangledName"]] = name

    def _add_virtual_table(self, scope: dict, name: str) -> None:
        """A class's virtual table is where its first virtual function is that is neither pure nor in the header."""
        functions = [member for member in inner(scope) if member["kind"] in FUNCTIONS and member.get("virtual")]
        if scope["kind"] != "CXXRecordDecl" or not any(is_left_to_library(member) for member in functions):
            return
        mangled = "".join(f"{len(part)}{part}" for part in name.split("::"))
        for prefix in ("_ZTVN", "_ZTIN"):
            self.symbols[f"{prefix}{mangled}E"] = f"the virtual table of {name}"

    def _add_function_template(self, template: dict, name: str) -> None:
        pattern, *instances = [part for part in inner(template) if part["kind"] in FUNCTIONS]
        if is_left_to_library(pattern):
            self.function_templates.add((name, pattern["type"]["qualType"]))
            for instance in instances:
                self._add_function(instance, f"{name}<…>")

    def _add_class_template(self, template: dict, name: str) -> None:
        classes = [part for part in inner(template) if part["kind"] == "CXXRecordDecl"]
        members = [member for one in classes for member in inner(one) if member["kind"] in FUNCTIONS]
        if any(is_left_to_library(member) for member in members):
            self.class_templates.add(name)
        if name not in self.class_templates:
            return
        for part in inner(template):
            if part["kind"] == "ClassTemplateSpecializationDecl":
                self._walk(inner(part), f"{name}<…>", "private")


def documents(text: str) -> Iterator[dict]:
    """Clang writes one JSON document for each outermost declaration that the filter lets through."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        node, end = decoder.raw_decode(text, place)
        yield node
        place = text.find("{", end)


def declarations(compiler: str, includes: list[str], program: str) -> Declarations:
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "headers.cpp")
        source.write_text(program)
        done = subprocess.run(
            [compiler, "-std=c++20", "-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang", "-ast-dump-filter=farandole",
             *(f"-I{directory}" for directory in includes), str(source)], stdout=subprocess.PIPE, check=True)
    return Declarations(documents(done.stdout.decode()))


def including_all(includes: list[str]) -> str:
    headers = sorted(str(header.relative_to(directory)) for directory in includes
                     for header in pathlib.Path(directory).rglob("*.h"))
    return "".join(f'#include "{header}"\n' for header in headers)


def address_of(name: str, kind: str, scalar: str) -> str:
    """An expression for the address of a template's instance, for use in the namespace of the template."""
    result, parameters = re.sub(r"\bScalar\b", scalar, kind).split(" (", 1)
    return f"static_cast<{result} (*)({parameters}>(&{name}<{scalar}>)"


def instantiating(templates: Declarations) -> str:
    lines = []
    for scalar in SCALARS:
        lines += [f"extern template class {name}<{scalar}>;" for name in sorted(templates.class_templates)]
        lines += [f"namespace {name.rpartition('::')[0]} {{ const auto address_{scalar}_{index} = "
                  f"{address_of(name, kind, scalar)}; }}"
                  for index, (name, kind) in enumerate(sorted(templates.function_templates))]
    return "\n".join(lines) + "\n"


def exported(libraries: list[str]) -> set[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", *libraries], stdout=subprocess.PIPE, check=True)
    return {line.split()[0] for line in listed.stdout.decode().splitlines() if len(line.split()) > 1}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", action="append", required=True)
    parser.add_argument("libraries", nargs="+")
    arguments = parser.parse_args()
    headers = including_all(arguments.include)
    templates = declarations(arguments.compiler, arguments.include, headers)
    wanted = declarations(arguments.compiler, arguments.include, headers + instantiating(templates)).symbols
    missing = {symbol: wanted[symbol] for symbol in wanted.keys() - exported(arguments.libraries)}
    for symbol, name in sorted(missing.items(), key=lambda item: item[1]):
        print(f"declared in a public header, but no library exports it: {name} ({symbol})")
    print(f"{len(wanted)} symbols of public headers, {len(templates.class_templates)} class templates and "
          f"{len(templates.function_templates)} function templates among them; {len(missing)} are missing")
    return 1 if missing or len(wanted) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
