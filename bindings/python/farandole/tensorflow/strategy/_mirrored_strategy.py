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
    """Trains one model on all ranks of the job: one replica of the model per process, on any number of hosts.

        strategy = farandole.tensorflow.MirroredStrategy()
        with strategy.scope():
            model = keras.Sequential([…])
            model.compile(…)
        model.fit(x, y, batch_size=256)  # the global batch: each of 4 ranks computes 64 rows

    Start the program with mpirun. The constructor joins the job (`farandole.init`) unless the program has done so.

    - Variables that are created in `scope()` start with rank 0's values and stay equal on all ranks.
    - Every rank produces the same batches of a dataset in the same order, and computes its own rows of each batch.
      Gradients are summed over the ranks.
    - All ranks must call fit, evaluate and predict, and read metrics, in the same order. Otherwise all ranks raise
      `farandole.errors.Mismatch`; within a tf.function that is a FailedPreconditionError, which `converted_errors`
      converts.

    model_check: before training, the ranks compare the computation of their models, see docs/keras.md#errors. False
        skips the comparison. Pass the same value on all ranks.

    Collective: all ranks construct the strategy. Blocks until all have.

    The class is derived from MultiWorkerMirroredStrategy only because Keras checks for that class; no method of the
    parent runs. docs/keras.md says which programs work and how results differ from those of one process.
    """

    def __init__(self, model_check: bool = True) -> None:  # pylint: disable=super-init-not-called
        init()
        _extended.hide_other_gpus()
        progress()
        _seeds.agree()
        # The parent's __init__ would start a server of TensorFlow.
        tf.distribute.Strategy.__init__(self, _extended.Extended(self))
        self.model_check = model_check
        _missing_scope.ignore_collectives_so_far()

    def scope(self) -> Any:
        """Returns the context in which models, optimizers, metrics and variables are created. The first call installs
        the patches of Keras (_patches.py); raises ImportError if this version of Keras does not work."""
        _support_keras()
        return super().scope()

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None, batch: Any = None
    ) -> Any:
        """Calls `fn(*args, **kwargs)` as this rank's replica, and returns the result.

        batch: the passed tensors that hold this rank's rows of the batch; averages over the ranks are weighted by the
            numbers of these rows. May be left out if all passed tensors have the same number of rows, or if the
            batch comes from a distributed dataset. (): there is no batch, and all ranks have the same weight.

        Collective: all ranks call `run` with the same function. Raises Unsupported for a Keras model that was compiled
        with jit_compile=True.
        """
        _refuse_jit(fn)
        with _share.pass_batch(batch):
            return super().run(fn, args=args, kwargs=kwargs, options=options)

    def reduce(self, reduce_op: Any, value: Any, axis: Optional[int] = None) -> Any:
        """Combines the values of all ranks; every rank gets the result. Collective, and blocks in eager mode.

        A scalar with an axis is returned unchanged: Keras passes the logs of a batch in this form.
        """
        shape = () if isinstance(value, (int, float)) else getattr(value, "shape", None)
        if axis is not None and shape is not None and getattr(shape, "rank", len(shape)) == 0:
            return value
        return super().reduce(reduce_op, value, axis)


def _support_keras() -> None:
    """Installs the patches of Keras if the program has imported Keras."""
    import sys

    if "keras" in sys.modules:
        from . import _patches

        _patches.install()
    if "tf_keras" in sys.modules:
        _warn_legacy_keras()


@functools.lru_cache(maxsize=None)
def _warn_legacy_keras() -> None:
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


