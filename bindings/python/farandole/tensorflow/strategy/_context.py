# SPDX-License-Identifier: Apache-2.0
"""The replica context of `strategy.run`. Holds whether the function
is a step of a Keras model, and this rank's share of the rows."""

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
    """(Model, method name) if `fn` is a step of a Keras 3 model, otherwise (None, "")."""
    keras, name = sys.modules.get("keras"), getattr(fn, "__name__", "")
    while keras is not None and name in _MODEL_STEPS and fn is not None:
        if isinstance(getattr(fn, "__self__", None), keras.Model):
            return fn.__self__, name
        fn = getattr(fn, "__wrapped__", None)  # AutoGraph has wrapped the method
    return None, ""


class ReplicaContext(tf.distribute.ReplicaContext):
    """The context of one call of `run` on this rank.

    model_step: name of the Keras model's method that runs, as in `fit`; otherwise empty. Within such a step losses and
        gradients are defined as in a single process, see docs/decisions/0012-losses-in-the-eyes-of-a-model.md. Any
        other function follows the definitions of tf.distribute.
    function, function_name: the function that `run` calls.
    """

    def __init__(self, strategy: Any, fn: Callable[..., Any], inputs: Any):
        super().__init__(strategy, replica_id_in_sync_group=_lifecycle.rank())
        self.model, self.model_step = _model_step(fn)
        self.function, self.function_name = fn, getattr(fn, "__name__", "function")
        self._samples_are_agreed = getattr(fn, "samples_are_agreed", False)
        self._share: Optional[tf.Tensor] = None
        self._is_share_used = False
        named_batch = _share.take_passed_batch()
        self._is_named = named_batch is not None
        # The tensors that may hold rows of the batch.
        self._counted = _share.with_rows(named_batch if self._is_named else inputs)

        self._graph: Optional[tf.Graph] = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        # The optimizer whose loss Keras' own train_step is about to scale, and whether the loss has been scaled.
        self._to_scale: Any = None
        self.has_scaled = False
        self.is_applying = False
        self.is_differentiating = False

    def add_batch(self, batch: Any) -> None:
        """Called when the function itself takes a batch of a distributed dataset. All ranks have exchanged their
        numbers of rows by then. A function may take several batches in turn. A batch has its own share if no
        tensor precedes it, or if a single batch precedes it and that batch's share has been used. Otherwise the batch
        is counted together with the earlier tensors."""
        if self._is_named:
            return
        taken = _share.with_rows(batch)
        if not self._counted or (self._samples_are_agreed and self._is_share_used):
            self._counted, self._samples_are_agreed = taken, True
        else:  # counted with the earlier tensors
            self._counted, self._samples_are_agreed = self._counted + taken, False
        self._share, self._is_share_used = None, False

    def share(self) -> Optional[tf.Tensor]:
        """This rank's part of the rows of all ranks, a float64 scalar. None if the program says that there is no batch.

        In Keras' own loops the ranks have exchanged the numbers when they agreed on the batch. Otherwise the first call
        starts a collective, which overlaps with the forward pass.
        """
        self._is_share_used = True
        if self._samples_are_agreed:
            return progress().share()  # reads a variable, so any graph will do
        if self._share is None and not (self._is_named and not self._counted):
            # The first call may come from within a branch or a loop, whose tensors other graphs cannot use.
            with self._graph_of_run():
                self._share = _share.share_of_rows(self._counted)
        return self._share

    def compute_share(self) -> None:
        """Runs the collective of `share` if there is one. Call this before any decision that some ranks can take from
        static shapes alone, such as "there are no rows". All ranks then run the same collectives."""
        if not self._samples_are_agreed:
            self.share()

    def _graph_of_run(self) -> Any:
        """The graph in which `run` was called."""
        if tf.executing_eagerly():
            return contextlib.nullcontext()
        if self._graph is tf.compat.v1.get_default_graph():
            return contextlib.nullcontext()
        if self._graph is None:
            raise errors.Unsupported(
                "a function of TensorFlow that is called in a step that runs eagerly cannot tell how many samples the "
                "step has: remove the @tf.function from it, or run_eagerly from compile()"
            )
        return self._graph.as_default()

    def weight(self) -> tf.Tensor:
        """This rank's weight in averages over the ranks, a float64
        scalar: its share, or 1 / number of ranks if unknown."""
        share = self.share()
        return self.even_weight() if share is None else share

    def even_weight(self) -> tf.Tensor:
        """The weight if all ranks have the same: 1 / number of ranks, a float64 scalar."""
        return tf.constant(1.0 / _lifecycle.size(), tf.float64)

    def rows(self) -> Any:
        """Number of rows of the first input tensor: an int if
        static, otherwise a tensor. None without such a tensor."""
        return _share.rows_of(self._counted[0]) if self._counted else None

    def is_of_rows(self, value: Any) -> bool:
        """True if a loss has one value, or several values, for each row of the inputs."""
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
        # A static size, while the number of rows is dynamic, means that the value is not computed row by row.
        if not isinstance(rows, int) or rows == 0:
            return rows == 0 and elements == 0
        if tf.executing_eagerly() and rows == 1:
            return 1 in value.shape
        return elements % rows == 0

    @contextlib.contextmanager
    def scaling(self, optimizer: Any) -> Iterator[None]:
        """Context for Keras' own train_step, which differentiates the result of the optimizer's scale_loss()."""
        before = self._to_scale, self.has_scaled
        self._to_scale, self.has_scaled = optimizer, False
        try:
            yield
        finally:
            self._to_scale, self.has_scaled = before

    def begins_to_scale(self, optimizer: Any) -> bool:
        """True if the loss of this optimizer has to be weighted. From then on
        `has_scaled` is set, for this optimizer and its inner optimizers."""
        if optimizer is not self._to_scale:
            return False
        self._to_scale, self.has_scaled = None, True
        return True

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """Context in which an optimizer applies weighted gradients."""
        self.is_applying = True
        try:
            yield
        finally:
            self.is_applying = False

    @contextlib.contextmanager
    def differentiating(self) -> Iterator[None]:
        """Context in which a tape computes gradients."""
        self.is_differentiating = True
        try:
            yield
        finally:
            self.is_differentiating = False

    def without_nan(self, gradients: Any) -> Any:
        """Returns the gradients. If this rank has no rows, zeros replace values that are not finite."""
        # All tensors of a batch that the ranks have agreed on have the same number of rows.
        counted = self._counted[:1] if self._samples_are_agreed else self._counted
        return _share.without_nan(gradients, counted)

    def average(self, value: tf.Tensor) -> tf.Tensor:
        """The average over the ranks, weighted by their rows. A rank
        without rows has no effect, even if its value is NaN."""
        if _lifecycle.size() == 1:
            return value
        # Without input data all ranks have the same weight.
        share = self.share() if self._counted else None
        if share is None:
            return self.all_reduce(tf.distribute.ReduceOp.MEAN, value)
        part = tf.math.multiply_no_nan(value, tf.cast(share, value.dtype))
        return mpi_ops._allreduce(part, op=Sum, **named("average"))


def own_context() -> Optional[ReplicaContext]:
    """The current replica context if a strategy of this package
    made it and the job has several ranks, otherwise None."""
    context = tf.distribute.get_replica_context()
    return context if isinstance(context, ReplicaContext) and _lifecycle.size() > 1 else None


def step_context() -> Optional[ReplicaContext]:
    """`own_context()` if a step of a Keras model runs, otherwise None."""
    context = own_context()
    return context if context is not None and context.model_step else None
