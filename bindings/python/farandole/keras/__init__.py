# SPDX-License-Identifier: Apache-2.0
"""Horovod's API for Keras: Keras 3, or tf-keras with TF_USE_LEGACY_KERAS=1.

    import farandole.keras as hvd

    hvd.init()
    model.compile(hvd.DistributedOptimizer(optimizer), …)
    model.fit(…, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Names, arguments and defaults are Horovod's; docs/keras.md says what differs.
"""

from typing import Any, Optional

# Horovod's two modules for Keras have the same names. Only functions that differ are defined below.
from ..tensorflow.keras import *  # noqa: F401, F403
from ..tensorflow.keras import Average, Compression, _impl
from . import callbacks, elastic


def DistributedOptimizer(  # pylint: disable=invalid-name
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """Returns a Keras optimizer like `optimizer` that reduces gradients over the ranks before it clips and applies
    them.

    Arguments are those of `farandole.tensorflow.DistributedOptimizer`. Models that are saved with the optimizer load in
    processes without Farandole.
    """
    return _impl.distributed_optimizer(**locals())


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a number, array or tensor of the same shape on all ranks. Every rank gets the result as an array.

    average: True means op=Average, False means op=Sum. Ignored if `op` is given.

    Collective, blocks. Raises the errors of `farandole.tensorflow.allreduce`.
    """
    average = average if op is None else None
    return _impl.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)
