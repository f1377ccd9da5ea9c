# SPDX-License-Identifier: Apache-2.0
"""A tf.distribute.Strategy over the ranks of the job."""

import functools
from typing import Any, Callable, Optional

import tensorflow as tf

from ... import _engine, _missing_scope, _lifecycle, errors
from .. import init
from . import _extended, _seeds, _share
from ._progress import progress

__all__ = ["MirroredStrategy"]


class MirroredStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """Trains one model on all ranks of the job, each of which has one replica of it, on any number of hosts.

        strategy = farandole.tensorflow.MirroredStrategy()
        with strategy.scope():
            model = keras.Sequential([…])
            model.compile(…)
        model.fit(x, y, batch_size=256)  # in all: each of 4 ranks takes 64

    Start the program with mpirun. Joins the job (`farandole.init`) if need be. Variables that are made in `scope()`
    start with rank 0's values and stay equal. Every rank makes the whole batches of a dataset, in the same order, and
    takes its rows of each; gradients are summed up over the ranks. All ranks fit, evaluate, predict and read metrics
    alike: ranks that do not raise `farandole.errors.Mismatch`; within a tf.function it is the FailedPreconditionError that
    `converted_errors` converts.

    model_check: before training, the ranks compare what their models compute, see docs/keras.md#errors. False leaves that out;
    pass the same on all ranks.

    It is a MultiWorkerMirroredStrategy by its class only, because Keras asks for that; it uses nothing of it.
    docs/keras.md says what works and what differs.
    """

    def __init__(self, model_check: bool = True) -> None:  # pylint: disable=super-init-not-called
        init()
        progress()
        _seeds.agree()
        # Not the parent's, which starts a server.
        tf.distribute.Strategy.__init__(self, _extended.Extended(self))
        self.model_check = model_check
        _missing_scope.ignore_collectives_so_far()

    def scope(self) -> Any:
        _support_keras()
        return super().scope()

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None, batch: Any = None
    ) -> Any:
        """Calls `fn`, here and on every other rank, as a replica.

        batch: the tensors, among those that are passed, of whose rows each rank has a part: by them ranks count in means.
            It need not be given where all tensors have as many rows, or the batch comes from a distributed dataset. ()
            says that there is none, and that all ranks count alike.
        """
        _refuse_jit(fn)
        with _share.naming(batch):
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    def reduce(self, reduce_op: Any, value: Any, axis: Optional[int] = None) -> Any:
        """Combines the values of all ranks. Scalars with an axis, as which Keras passes the logs of a batch, stay what
        they are on each rank."""
        shape = () if isinstance(value, (int, float)) else getattr(value, "shape", None)
        if axis is not None and shape is not None and getattr(shape, "rank", len(shape)) == 0:
            return value
        return super().reduce(reduce_op, value, axis)


def _support_keras() -> None:
    """Teaches Keras, if the program has imported it."""
    import sys

    if "keras" in sys.modules:
        from . import _patches

        _patches.install()
    if "tf_keras" in sys.modules:
        _warn_of_legacy_keras()


@functools.lru_cache(maxsize=None)
def _warn_of_legacy_keras() -> None:
    if _lifecycle.rank() == 0 and _lifecycle.size() > 1:
        _engine.log(
            "warning",
            "MirroredStrategy is made for Keras 3: with tf-keras, batches that do not come out evenly are weighted wrongly. "
            "Use Keras 3, or Horovod's API in farandole.tensorflow.keras",
        )


def _refuse_jit(fn: Callable[..., Any]) -> None:
    model = getattr(fn, "__self__", None)
    if getattr(model, "jit_compile", False) is True and _lifecycle.size() > 1:
        raise errors.Unsupported(
            "compile(jit_compile=True) is not possible with MirroredStrategy: XLA has no kernel for reductions between "
            'processes. Leave jit_compile at "auto", or decorate expensive parts of the model with '
            "tf.function(jit_compile=True)"
        )


