# SPDX-License-Identifier: Apache-2.0
"""Gradient tapes whose gradients are reduced over the ranks."""

from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from .. import errors
from .._engine import Average
from ..process_sets import ProcessSet, global_process_set
from ._gradients import GradientReducer, Groups, reducer_options, refuse_in_model_step
from .compression import Compression


class _DistributedGradientTape(tf.GradientTape):
    """Wraps a tape. `gradient` reduces over the ranks; all other results are this rank's own."""

    def __init__(self, tape: tf.GradientTape, reducer: GradientReducer):  # pylint: disable=super-init-not-called
        self._wrapped = tape
        self._reducer = reducer

    def register_local_source(self, source: Any) -> None:
        """Marks a variable as local: its gradient belongs to this rank and is not reduced."""
        self._reducer.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """The gradients of `target`, reduced over the ranks, in the structure of `sources`.

        use_generic_names: names the gradients by numbers instead of by names of the graph, for ranks with different
            graphs.

        Collective. Raises the errors of `allreduce`.
        """
        refuse_in_model_step("DistributedGradientTape")
        gradients = self._wrapped.gradient(target, sources, output_gradients, unconnected_gradients)
        flat_sources = tf.nest.flatten(sources)
        flat_gradients = [gradients] if len(flat_sources) == 1 and not _is_nested(sources) else _flatten(gradients)
        reduced = self._reducer.reduce(flat_gradients, flat_sources, "grad" if use_generic_names else None)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Sequence[Any], output_gradients: Any = None, use_generic_names: bool = False
    ) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        """([(source, gradient) of each local source], [(source, reduced gradient) of any other source]). Collective."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names=use_generic_names)
        pairs = list(zip(sources, gradients))
        local = [pair for pair in pairs if self._reducer.is_local(pair[0])]
        return local, [pair for pair in pairs if not self._reducer.is_local(pair[0])]

    def __enter__(self):
        self._wrapped.__enter__()
        return self

    def __exit__(self, kind, value, trace):
        return self._wrapped.__exit__(kind, value, trace)

    def watch(self, tensor: Any) -> None:
        self._wrapped.watch(tensor)

    def stop_recording(self) -> Any:
        return self._wrapped.stop_recording()

    def reset(self) -> None:
        self._wrapped.reset()

    def watched_variables(self) -> Any:
        return self._wrapped.watched_variables()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """This rank's jacobian, not reduced."""
        return self._wrapped.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """This rank's jacobian, not reduced."""
        return self._wrapped.batch_jacobian(*args, **kwargs)


def _is_nested(sources: Any) -> bool:
    return tf.nest.is_nested(sources)


def _flatten(gradients: Any) -> List[Any]:
    # IndexedSlices count as one gradient, not as three tensors.
    return tf.nest.flatten(gradients, expand_composites=False)


def DistributedGradientTape(  # pylint: disable=invalid-name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Returns a tape that reduces the gradients of `gradtape` over the ranks.

        with tf.GradientTape() as tape:
            loss = loss_of(model(x), y)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    gradtape: a tf.GradientTape, before or after it has recorded.
    device_dense, device_sparse, compression, op: as for `allreduce`.
    sparse_as_dense: converts IndexedSlices to tensors.
    gradient_predivide_factor: with op=Average, divides gradients by this factor before the sum, and the sum by
        (number of ranks / factor).
    num_groups: older form of `groups`.
    groups: the number of groups of gradients that are reduced together, or a list of lists of variables; any other
        variable is reduced on its own. None: dense gradients are reduced in a single group in eager mode, in groups of
        at least 8 MiB in a graph; IndexedSlices are a group of their own.
    process_set: the ranks that take part. Other ranks get their own gradients.
    scale_local_gradients: divides gradients of local sources by the number of ranks.
    """
    options = reducer_options(locals())
    return _DistributedGradientTape(gradtape, GradientReducer("DistributedGradientTape", **options))


def PartialDistributedGradientTape(  # pylint: disable=invalid-name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """`DistributedGradientTape` that does not reduce the gradients of `local_layers`, a Keras layer or several."""
    arguments = dict(locals())
    layers = [] if arguments.pop("local_layers") is None else local_layers
    layers = [layers] if hasattr(layers, "trainable_weights") else list(layers)
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise errors.InvalidArgument(f"local_layers must be Keras layers, not {type(layer).__name__}")
    tape = DistributedGradientTape(**arguments)
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
