# SPDX-License-Identifier: Apache-2.0
"""What a function that `strategy.run` calls is: a step of a Keras model or not, and of how many rows."""

import contextlib
import sys
from typing import Any, Callable, Iterator, Optional, Tuple

import tensorflow as tf

from ... import _lifecycle, errors
from ..._engine import Sum
from .. import mpi_ops
from . import _share
from ._graph import may_have_rows
from ._names import named
from ._progress import progress

_MODEL_STEPS = ("train_step", "test_step", "predict_step")


def _model_step(fn: Any) -> Tuple[Any, str]:
    """The model and the name of `fn`, if that is one of the steps of a Keras 3 model; else None and empty."""
    keras, name = sys.modules.get("keras"), getattr(fn, "__name__", "")
    while keras is not None and name in _MODEL_STEPS and fn is not None:
        if isinstance(getattr(fn, "__self__", None), keras.Model):
            return fn.__self__, name
        fn = getattr(fn, "__wrapped__", None)  # AutoGraph has put something around the method
    return None, ""


class ReplicaContext(tf.distribute.ReplicaContext):
    """Of one call of `run` on this rank.

    model_step: the method of a Keras model that is called, as `fit` does, or empty. Within it everything is as in one
    process, see docs/decisions/0012-losses-in-the-eyes-of-a-model.md; other functions see what tf.distribute defines.
    function, function_name: what is called.
    """

    def __init__(self, strategy: Any, fn: Callable[..., Any], inputs: Any):
        super().__init__(strategy, replica_id_in_sync_group=_lifecycle.rank())
        self.model, self.model_step = _model_step(fn)
        self.function, self.function_name = fn, getattr(fn, "__name__", "function")
        self._samples_are_agreed = getattr(fn, "samples_are_agreed", False)
        self._share: Optional[tf.Tensor] = None
        self._is_share_used = False
        named_batch = _share.taken_name()
        self._is_named = named_batch is not None
        # The tensors among which the batch is, of whose rows each rank has its share.
        self._counted = _share.with_rows(named_batch if self._is_named else inputs)

        self._graph: Optional[tf.Graph] = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        # The optimizer whose loss Keras' own train_step is about to scale, and whether it has.
        self._to_scale: Any = None
        self.has_scaled = False
        self.is_applying = False
        self.is_differentiating = False

    def takes(self, batch: Any) -> None:
        """The function itself has taken a batch of a distributed dataset, of which all ranks have said how many rows they
        have. It may take several, one after the other: each counts by itself, unless it comes before the share of the one
        before was asked for."""
        if self._is_named:
            return
        taken = _share.with_rows(batch)
        if not self._counted or (self._samples_are_agreed and self._is_share_used):
            self._counted, self._samples_are_agreed = taken, True
        else:  # beside what there was
            self._counted, self._samples_are_agreed = self._counted + taken, False
        self._share, self._is_share_used = None, False

    def share(self) -> Optional[tf.Tensor]:
        """This rank's part of the samples of all ranks, a float64 scalar. None if the program says that there is no batch.

        In Keras's own loops the ranks have told each other when they agreed on the batch. Elsewhere it is one collective,
        where it is asked for, which runs while the forward pass does.
        """
        self._is_share_used = True
        if self._samples_are_agreed:
            return progress().share()  # of a variable, in whatever graph this is
        if self._share is None and not (self._is_named and not self._counted):
            # The first to ask for it may be in a branch or a loop, which the others are not.
            with self._of_step():
                self._share = _share.of_rows(self._counted)
        return self._share

    def meet(self) -> None:
        """Runs the collective of `share`, if there is one. To be called before anything is asked that may be known
        beforehand on some ranks only, such as whether there are rows: all ranks then make the same collectives."""
        if not self._samples_are_agreed:
            self.share()

    def _of_step(self) -> Any:
        """The graph in which `run` was called."""
        if tf.executing_eagerly():
            return contextlib.nullcontext()
        if self._graph is tf.compat.v1.get_default_graph():
            return contextlib.nullcontext()
        if self._graph is None:
            raise errors.Unsupported(
                "a function of TensorFlow that is called in a step that runs eagerly can not tell how many samples the "
                "step has: remove the @tf.function from it, or run_eagerly from compile()"
            )
        return self._graph.as_default()

    def weight(self) -> tf.Tensor:
        """What this rank counts in averages over the ranks, a float64 scalar: its share, if unknown 1/ranks."""
        share = self.share()
        return self.even_weight() if share is None else share

    def even_weight(self) -> tf.Tensor:
        """That of ranks which all count alike."""
        return tf.constant(1.0 / _lifecycle.size(), tf.float64)

    def rows(self) -> Any:
        """Of the first tensor of the inputs: an int where it is known, else a tensor; None if there is none."""
        return _share.rows_of(self._counted[0]) if self._counted else None

    def is_of_rows(self, value: Any) -> bool:
        """Whether the value, a loss, has a number for each row of the inputs, or several."""
        if isinstance(value, tf.RaggedTensor):
            return True
        if not tf.is_tensor(value) or value.shape.rank == 0:
            return False
        if not may_have_rows(value):
            return False
        elements = value.shape.num_elements()
        if elements is None:
            return True
        rows = self.rows()
        # What has a size that is known although the rows are not counted yet does not come from them one by one.
        if not isinstance(rows, int) or rows == 0:
            return rows == 0 and elements == 0
        if tf.executing_eagerly() and rows == 1:
            return 1 in value.shape
        return elements % rows == 0

    @contextlib.contextmanager
    def scaling(self, optimizer: Any) -> Iterator[None]:
        """Keras' own train_step, which differentiates what scale_loss() of the optimizer returns."""
        before = self._to_scale, self.has_scaled
        self._to_scale, self.has_scaled = optimizer, False
        try:
            yield
        finally:
            self._to_scale, self.has_scaled = before

    def begins_to_scale(self, optimizer: Any) -> bool:
        """Whether the loss of this optimizer has to be weighted. From then on `has_scaled` says so: for this optimizer, and
        for those that it is made of."""
        if optimizer is not self._to_scale:
            return False
        self._to_scale, self.has_scaled = None, True
        return True

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """While an optimizer applies gradients that are weighted."""
        self.is_applying = True
        try:
            yield
        finally:
            self.is_applying = False

    @contextlib.contextmanager
    def differentiating(self) -> Iterator[None]:
        """While a tape goes backward."""
        self.is_differentiating = True
        try:
            yield
        finally:
            self.is_differentiating = False

    def without_nan(self, gradients: Any) -> Any:
        """The gradients, with zeros for what is not finite if this rank has no rows."""
        # Tensors of a batch that the ranks have agreed on have as many rows.
        counted = self._counted[:1] if self._samples_are_agreed else self._counted
        return _share.without_nan(gradients, counted)

    def average(self, value: tf.Tensor) -> tf.Tensor:
        """The average over the ranks, by their samples. A rank without samples does not count, even with a NaN."""
        if _lifecycle.size() == 1:
            return value
        # A function without data counts as much on all ranks.
        share = self.share() if self._counted else None
        if share is None:
            return self.all_reduce(tf.distribute.ReduceOp.MEAN, value)
        part = tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))
        return mpi_ops._allreduce(part, op=Sum, **named("average"))


def own_context() -> Optional[ReplicaContext]:
    """The context of the replica, if it is one of ours and not the only one."""
    context = tf.distribute.get_replica_context()
    return context if isinstance(context, ReplicaContext) and _lifecycle.size() > 1 else None


def step_context() -> Optional[ReplicaContext]:
    """The same, if it is in a step of a Keras model."""
    context = own_context()
    return context if context is not None and context.model_step else None
