# SPDX-License-Identifier: Apache-2.0
"""Optimizers that reduce gradients over the ranks before they apply them."""

from typing import Any, Optional

import tensorflow as tf

from .. import errors
from .._engine import Adasum, Average
from ..process_sets import ProcessSet, global_process_set
from ._gradients import GradientReducer, Groups, reducer_options
from .compression import Compression


def DistributedOptimizer(  # pylint: disable=invalid-name
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer like `optimizer` that reduces gradients over the ranks before it applies them.

        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))

    optimizer: an optimizer of Keras 3, of tf-keras, or of tf.compat.v1. With Keras 3, `apply` reduces, and so do `fit`
        and `apply_gradients`. Use tf.GradientTape, not DistributedGradientTape: the latter would reduce a second time.
        With tf-keras, `minimize` and `fit` reduce. With tf.compat.v1, `compute_gradients` and `minimize` reduce.
    name: name of the new optimizer. None: the wrapped optimizer's name with Keras 3; "DistributedDelta<class>" with
        Adasum; otherwise "Distributed<class>".
    use_locking: for tf.compat.v1 optimizers.
    backward_passes_per_step: number of backward passes whose gradients a rank sums before they are reduced and applied.
    average_aggregated_gradients: divides the sums by that number.
    op: Average, Sum, or Adasum. Adasum needs an optimizer of tf.compat.v1 and combines the ranks' updates instead of
        their gradients. With Adasum only name, use_locking, compression and backward_passes_per_step have an effect.

    The other arguments are those of `DistributedGradientTape`. Raises InvalidArgument for arguments that exclude each
    other, Unsupported for Adasum with a process set.
    """
    options = reducer_options(locals())
    if op == Adasum and average_aggregated_gradients:
        raise errors.InvalidArgument("Adasum does not average aggregated gradients; leave average_aggregated_gradients")
    is_v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    kind = type(optimizer).__name__
    if op == Adasum:
        delta = name or f"DistributedDelta{kind}"
        return _adasum(optimizer, is_v1, delta, use_locking, compression, backward_passes_per_step, process_set)

    def make_reducer() -> GradientReducer:
        return GradientReducer(name or f"Distributed{kind}", **options)

    passes = (backward_passes_per_step, average_aggregated_gradients)
    if is_v1:
        from ._v1_optimizer import DistributedOptimizer as V1DistributedOptimizer

        return V1DistributedOptimizer(optimizer, make_reducer(), *passes, name or f"Distributed{kind}", use_locking)
    from . import _keras_optimizer

    return _keras_optimizer.wrap(optimizer, make_reducer, *passes, name)


def _adasum(
    optimizer: Any,
    is_v1: bool,
    name: str,
    use_locking: bool,
    compression: Any,
    passes: int,
    process_set: ProcessSet,
) -> Any:
    if not is_v1:
        raise errors.InvalidArgument(
            "op=Adasum is for optimizers of tf.compat.v1, as in Horovod; use Average with Keras"
        )
    if process_set is not global_process_set:
        raise errors.Unsupported("Adasum optimizers work on all ranks only; leave process_set out")
    from ._v1_optimizer import DistributedAdasumOptimizer

    return DistributedAdasumOptimizer(optimizer, passes, compression, name, use_locking)
