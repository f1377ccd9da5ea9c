# SPDX-License-Identifier: Apache-2.0
"""Locations of the package's files other than Python code."""

import os
import sys
from pathlib import Path
from typing import Iterator


def candidates(*parts: str) -> Iterator[Path]:
    """Paths where a file of the package may be. An editable install has two directories: sources and build."""
    for directory in sys.modules[__package__].__path__:
        yield Path(directory).absolute().joinpath(*parts)


def header_dir() -> Path:
    """The directory that contains farandole/engine.h. Raises ImportError if there is none."""
    for path in candidates("include"):
        if (path / "farandole" / "engine.h").exists():
            return path
    raise ImportError("farandole/engine.h is not in the package; reinstall Farandole")


# Variables in which launchers pass a process its rank.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "FARANDOLE_RANK", "RANK")


def is_first_rank() -> bool:
    """True if this process is rank 0 or in no job, according to the launcher's variables. Works before `init`."""
    ranks = (os.environ.get(name) for name in _RANKS)
    return next((rank for rank in ranks if rank), "0") == "0"
