"""Several backward passes on one rank before gradients are reduced."""

from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from .. import errors


def zeros_variable(shape: Any, dtype: tf.DType, name: str, collection: str) -> Any:
    """A variable that is not trained; in a graph of TensorFlow 1 it belongs to `collection`."""
    return tf.compat.v1.Variable(
        tf.zeros(shape, dtype), trainable=False, collections=[collection], use_resource=True, name=name
    )


class GradientAggregator:
    """Sums up the gradients of `passes` backward passes.

    Its variables are made at the first call, as those of an optimizer are. In graphs of TensorFlow 1 they are local
    variables: run `tf.compat.v1.local_variables_initializer()`.
    """

    def __init__(self, passes: int, average: bool, sparse_as_dense: bool):
        if passes <= 0:
            raise errors.InvalidArgument(f"backward_passes_per_step must be positive, not {passes}")
        self._passes = passes
        self._average = average
        self._sparse_as_dense = sparse_as_dense
        self._counter: Any = None
        self._sums: List[Any] = []

    def add(self, gradients: Sequence[Any]) -> Tuple[List[Any], tf.Tensor]:
        """Adds gradients; None stays None. Returns the sums so far (their mean at the end, if asked for) and a boolean
        tensor: whether this was the last of the passes. The next call starts again."""
        dense = [self._dense(gradient) for gradient in gradients]
        present = [gradient for gradient in dense if gradient is not None]
        self._make_variables(present)
        if len(present) != len(self._sums):
            raise errors.InvalidArgument(
                f"{len(present)} gradients in this pass, {len(self._sums)} in the first: each pass must have gradients "
                "for the same variables"
            )
        *sums, is_last = self._step(*present)
        remaining = iter(sums)
        return [None if gradient is None else next(remaining) for gradient in dense], is_last

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self._sparse_as_dense:
            raise errors.InvalidArgument(
                "IndexedSlices can not be summed up over several backward passes; pass sparse_as_dense=True"
            )
        return tf.convert_to_tensor(gradient)

    def _make_variables(self, gradients: Sequence[tf.Tensor]) -> None:
        if self._counter is not None:
            return
        collection = tf.compat.v1.GraphKeys.LOCAL_VARIABLES
        with tf.init_scope():
            self._sums = [
                zeros_variable(gradient.shape, gradient.dtype, f"aggregated_gradient_{i}", collection)
                for i, gradient in enumerate(gradients)
            ]
            self._counter = zeros_variable((), tf.int64, "aggregation_counter", collection)
        # A function orders reads and writes of variables in graphs of TensorFlow 1 too.
        self._step = tf.function(self._add, autograph=False)

    def _add(self, *gradients: tf.Tensor) -> List[tf.Tensor]:
        is_first = tf.equal(self._counter, 0)
        sums = []
        for total, gradient in zip(self._sums, gradients):
            total.assign(tf.where(is_first, gradient, total + gradient))
            sums.append(total.read_value() / self._passes if self._average else total.read_value())
        self._counter.assign((self._counter + 1) % self._passes)
        return [*sums, tf.equal(self._counter, 0)]
