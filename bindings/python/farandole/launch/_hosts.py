# SPDX-License-Identifier: Apache-2.0
"""Parses hosts and their slots, in the notations of horovodrun, mpirun, mpiexec and Slurm."""

import re
import socket
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from .. import errors

Hosts = List[Tuple[str, int]]  # (name, slots), each name once

_IN_A_LIST = re.compile(r"([^\s:,=]+)(?::(\d+))?")
_IN_A_FILE = re.compile(r"([^\s:=]+)(?::(\d+)|\s+slots\s*=\s*(\d+))?(?:\s+max[-_]slots\s*=\s*\d+)?")


def parse_hosts(text: str) -> Hosts:
    """ "a:2,b" -> [("a", 2), ("b", 1)]. Raises InvalidArgument."""
    found = [(each, _IN_A_LIST.fullmatch(each.strip())) for each in text.split(",")]
    for each, match in found:
        if match is None:
            raise errors.InvalidArgument(f"hosts are written HOST:SLOTS,HOST:SLOTS,…; {each.strip()!r} in {text!r} is not")
    return _joined(((match[1], match[2]) for _, match in found if match), repr(text))


def parse_hostfile(text: str, name: str) -> Hosts:
    """Parses lines "HOST slots=SLOTS", as horovodrun's and Open MPI's, or "HOST:SLOTS", as MPICH's. Ignores empty lines
    and comments after #. Raises InvalidArgument."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        match = _IN_A_FILE.fullmatch(line)
        if line and match is None:
            raise errors.InvalidArgument(f"{name}:{number}: lines are written HOST slots=SLOTS or HOST:SLOTS; got {line!r}")
        if line and match is not None:
            found.append((match[1], match[2] or match[3]))
    if not found:
        raise errors.InvalidArgument(f"{name} names no host; its lines are written HOST slots=SLOTS or HOST:SLOTS")
    return _joined(found, name)


def _joined(found: Iterable[Tuple[str, Optional[str]]], source: str) -> Hosts:
    """Adds up the slots of hosts that are named repeatedly, as launchers do."""
    slots: Dict[str, int] = {}
    for host, count in found:
        if count is not None and int(count) < 1:
            raise errors.InvalidArgument(f"{host} in {source} has no slot; leave it out, or give it at least 1")
        slots[host] = slots.get(host, 0) + int(count or 1)
    return list(slots.items())


def text_of(hosts: Hosts) -> str:
    return ",".join(f"{name}:{count}" for name, count in hosts)


def places(hosts: Hosts, ranks: int) -> Hosts:
    """(Host, number of ranks placed there): fills the hosts in order, with consecutive ranks on a host."""
    placed = []
    for name, slots in hosts:
        here = min(slots, ranks)
        ranks -= here
        if here > 0:
            placed.append((name, here))
    return placed


def is_this_one(name: str) -> bool:
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", "::1", own, own.split(".")[0])


def slots_of_slurm(environment: Mapping[str, str]) -> Optional[int]:
    """Number of tasks in the Slurm allocation around this process,
    from SLURM_TASKS_PER_NODE ("2(x3),1": 7). None if unknown."""
    text = environment.get("SLURM_TASKS_PER_NODE", "")
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?(?:,|$)", text)
    return sum(int(tasks) * int(nodes or 1) for tasks, nodes in found) if found else None
