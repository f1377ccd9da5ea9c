# SPDX-License-Identifier: Apache-2.0
"""Differences between Farandole and Horovod 0.28.1, with reasons. docs/coming-from-horovod.md lists them for users."""

import re
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Difference:
    """pattern: a regular expression of the whole name of an outcome in this module; rank: on this rank only."""

    module: str
    pattern: str
    reason: str
    rank: Optional[int] = None


_MORE_TYPES = "Horovod's op does not take the type"
_MORE = "Horovod refuses it"
_BUG = "Horovod fails"

LISTED = [
    Difference("collectives", "(allreduce|allgather|broadcast|alltoall|reducescatter) bfloat16.*", _MORE_TYPES),
    Difference("collectives", "allreduce u?int16 .*", _MORE_TYPES),
    Difference("collectives", "allreduce of bool (Sum|Min|Max|Product), .*", _MORE_TYPES),
    Difference(
        "collectives",
        "allreduce of bool Average, (function|graph)",
        "Horovod's op does not take the type, which is a TypeError when a graph is made; here it does for other operations",
    ),
    Difference("collectives", "reducescatter u?int(8|16), .*", _MORE_TYPES),
    Difference("collectives", "group of several types .*", _MORE),
    Difference("collectives", "alltoall with splits of int64, .*", _MORE),
    Difference("collectives", "arrays and lists, eager", "Horovod takes tensors only"),
    Difference("reductions", "(scaled|adasum).* bfloat16.*", _MORE_TYPES),
    Difference("reductions", "scaled allreduce u?int16 .*", _MORE_TYPES),
    Difference("reductions", "scaled group u?int16, .*", _MORE_TYPES),
    Difference("reductions", "scaled reducescatter u?int(8|16) .*", _MORE_TYPES),
    Difference("reductions", "group with slices, .*", _BUG),
    Difference(
        "reductions",
        r"scaled allreduce float64 \(1\.0, 0\.4\) .*",
        "Horovod rounds factors to float32 before it multiplies; here they keep their digits",
    ),
    Difference(
        "gradients",
        "of allreduce by .*",
        "Horovod gives the gradient of a sum, which is not that of these operations; here there is none, and the error says so",
    ),
    Difference("gradients", "tape with one source, .*", _BUG),
    Difference("process_sets", "tape over one, eager", _BUG),
    Difference(
        "process_sets",
        "of no ranks, eager",
        "Horovod's set without ranks has the size of the job and does not include its ranks",
    ),
    Difference(
        "joining",
        "allreduce while one has joined 0 .*",
        "a rank that has joined adds what its memory holds in Horovod, and what changes nothing here",
        rank=1,
    ),
    Difference(
        "joining",
        "allreduce while one has joined 1 (Sum|Average), eager",
        "a rank that has joined adds what its memory holds in Horovod, and what changes nothing here",
        rank=0,
    ),
    Difference("refusals", "allgather of a scalar, eager", "it is InvalidArgumentError here, as for the other collectives"),
    Difference(
        "refusals",
        "alltoall with splits that are too small, .*",
        "Horovod drops the rows that are left, which is an error here",
    ),
    Difference("refusals", "an operation that is none, .*", "it is a ValueError here, before anything is sent"),
    Difference("refusals", "optimizer of another kind, graph", "it is a ValueError here"),
    Difference("refusals", "reducescatter by Adasum, .*", "it is InvalidArgumentError here, before anything is sent"),
    Difference("refusals", "reducescatter by Min, .*", _MORE),
]


def listed(name: str, rank: int) -> Optional[Difference]:
    """The entry that the outcome's name belongs to."""
    module, _, rest = name.partition(": ")
    for each in LISTED:
        if each.module == module and each.rank in (None, rank) and re.fullmatch(each.pattern, rest):
            return each
    return None
