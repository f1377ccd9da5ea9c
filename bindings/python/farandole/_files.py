# SPDX-License-Identifier: Apache-2.0
"""Where the parts of this package lie that are no Python code."""

import os
import sys
from pathlib import Path
from typing import Iterator


def candidates(*parts: str) -> Iterator[Path]:
    """Where a file of the package may be. An editable install has two places: the sources, and what was built."""
    for directory in sys.modules[__package__].__path__:
        yield Path(directory).absolute().joinpath(*parts)


def header_dir() -> Path:
    """The directory that contains farandole/engine.h. Raises ImportError if there is none."""
    sources = Path(__file__).resolve().parent.parent.parent.parent
    for path in (*candidates("include"), sources / "ops" / "engine" / "include"):
        if (path / "farandole" / "engine.h").exists():
            return path
    raise ImportError("farandole/engine.h is not in the package; reinstall Farandole")


# What launchers call the number of a process.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "FARANDOLE_RANK", "RANK")


def is_first_rank() -> bool:
    """Whether this is rank 0, or no job's, as far as launchers tell a process that has not joined yet."""
    ranks = (os.environ.get(name) for name in _RANKS)
    return next((rank for rank in ranks if rank), "0") == "0"
