# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of Horovod's names into docs/coming-from-horovod.md, from the table of the package:

    python page.py

Needs neither TensorFlow nor a build.
"""

import importlib.util
from itertools import groupby
from pathlib import Path
from typing import List

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "coming-from-horovod.md"
_BEGIN = "<!-- Names: written by tests/python/horovod_names/page.py -->\n"
_END = "<!-- End of names -->\n"


def _load_table():
    """The module, without its package, which needs a build."""
    path = ROOT / "bindings" / "python" / "farandole" / "_horovod" / "names.py"
    spec = importlib.util.spec_from_file_location("horovod_names_table", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renewed() -> str:
    """The page with the tables as they should be."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + _BEGIN + "\n" + tables() + "\n" + _END + after


def tables() -> str:
    table = _load_table()
    parts = []
    for module in sorted(table.ROWS, key=lambda name: (name.split("."), name)):
        rows = sorted(table.ROWS[module].values(), key=lambda row: _key(table, row))
        if rows:
            lines = [f"### `{module}`", "", "| names | state | difference or alternative |", "| --- | --- | --- |"]
            for _, alike in groupby(rows, key=lambda row: (row.state, row.note)):
                lines.append(_line(list(alike)))
            parts.append("\n".join(lines) + "\n")
    lines = ["### Modules that are not there", "", "| module | alternative |", "| --- | --- |"]
    lines += [f"| `{module}` | {note} |" for module, note in sorted(table.MISSING_MODULES.items())]
    lines = [line.replace("| `horovod.runner` |", "| other parts of `horovod.runner` |") for line in lines]
    return "\n".join(parts) + "\n" + "\n".join(lines) + "\n"


def _key(table, row):
    return [table.WORKS, table.DIFFERS, table.MISSING].index(row.state), row.note, row.name.lower(), row.name


def _line(rows: List) -> str:
    names = ", ".join(f"`{row.name}`" for row in rows)
    return f"| {names} | {rows[0].state} | {rows[0].note} |"


if __name__ == "__main__":
    PAGE.write_text(renewed())
