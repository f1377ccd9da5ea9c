# SPDX-License-Identifier: Apache-2.0
"""A barrier that names the ranks which are late."""

from datetime import timedelta
from typing import Optional

import torch.distributed as dist


def monitored_barrier(
    group: Optional[dist.ProcessGroup] = None, timeout: Optional[timedelta] = None, wait_all_ranks: bool = False
) -> None:
    """Waits until all ranks of the group have called. Raises Timeout, on all ranks that have, if some are late; the text
    names them by rank, host and process. After a Timeout the group stays usable.

        farandole.torch.monitored_barrier(timeout=timedelta(seconds=30))

    torch 2.11's `torch.distributed.monitored_barrier` refuses backends other than gloo, and torch 2.15's runs this
    one. This barrier takes place in the store of the group, and costs some milliseconds.

    timeout: of each rank, from its call; the group's default of 30 minutes if None.
    wait_all_ranks: names all late ranks, instead of the first.

    Collective: all ranks of the group, in the same order as other monitored barriers. Blocks. No-op on other ranks.
    """
    group = group or dist.group.WORLD
    if dist.get_rank(group) >= 0:
        group.monitored_barrier(timeout or dist.default_pg_timeout, wait_all_ranks)
