# SPDX-License-Identifier: Apache-2.0
"""Compares the ranks' weights, optimizer states and learning rates during training.

Code of the program may change these values on some ranks only, for example in a callback. Training would continue
without an error, with models that have less and less in common.
"""

from typing import Any, Dict, List, Tuple

import numpy as np
import tensorflow as tf

from ... import _lifecycle, objects
from .. import _errors, mpi_ops
from .._differences import difference, ranks_in_words, shortened
from .._gradients import variable_of
from ..functions import broadcast_variables
from . import _optimizers
from ._private_names import SyncOnReadVariable
from ._variables import AveragedVariable, from_first_rank

_NAME = "farandole.strategy.drift"
# Largest accepted difference to rank 0, relative to the largest element of the variable. Hosts with different
# processors round the same update differently; a change by the program is larger.
_ROUNDING = 1e-4


def _digest(tensors: List[tf.Tensor]) -> int:
    """A 64-bit digest of the whole contents. Different contents practically never have the same digest. Reads some GB
    per second."""
    return int(mpi_ops._LIB.farandole_digest(tensors=tensors, whole=True))


def _is_own(variable: Any) -> bool:
    """True if the variable has a value per rank by design, until it is read."""
    return isinstance(variable, SyncOnReadVariable) and not isinstance(variable, AveragedVariable)


def _state(model: Any) -> List[Tuple[str, Any]]:
    """(Displayed name, variable) of the variables that must be
    equal. Excludes metrics and states of random generators."""
    variables = list(model.weights)
    for optimizer in _optimizers.optimizers_of(model):
        # Gradient accumulators hold gradients of each rank's own samples until the next update.
        variables += [each for each in optimizer.variables if not each.name.endswith("gradient_accumulator")]
    unique = {id(each): each for each in variables}.values()
    return [(each.path, variable_of(each)) for each in unique if not _is_own(variable_of(each))]


def check(model: Any, when: str) -> None:
    """Raises Mismatch on all ranks if their models differ. Collective; a single small message if the models are equal.

    Variables whose difference may be rounding are set to rank 0's values, with a warning, if no variable differs more.

    when: a time for the error's text, such as "after epoch 3".
    """
    state = _state(model)
    values = [tf.convert_to_tensor(variable) for _, variable in state]
    if len(set(objects.allgather_object(_digest(values), _NAME))) == 1:
        return
    digests = objects.allgather_object([_digest([value]) for value in values], _NAME)
    if len(set(map(len, digests))) > 1:
        numbers = difference("the number of variables", {rank: len(each) for rank, each in enumerate(digests)})
        raise _errors.mismatch(f"{when} the models of the ranks differ: {numbers}. {_ADVICE}")
    others: Dict[int, List[int]] = {}  # position of a variable in `state` → ranks on which it differs from rank 0's
    for place in range(len(state)):
        ranks = [rank for rank, each in enumerate(digests) if each[place] != digests[0][place]]
        if ranks:
            others[place] = ranks
    if _deviation([state[place][1] for place in others]) <= _ROUNDING:
        _warn_rounding(state[next(iter(others))][0])
        broadcast_variables([state[place][1] for place in others], root_rank=0)
        return
    scalars = objects.allgather_object({place: float(values[place]) for place in others if values[place].shape.rank == 0})
    # A learning rate that differs comes first: it is the cause of the other differences.
    places = sorted(others, key=lambda place: "learning_rate" not in state[place][0])
    texts = [_difference(state[place][0], others[place], [each.get(place) for each in scalars]) for place in places]
    raise _errors.mismatch(f"{when} the models of the ranks differ: {shortened(texts)}. {_ADVICE}")


_ADVICE = (
    "Code that runs on some ranks only, such as a callback, loading of weights or an assignment, or that does something else "
    "there, has changed it: let it run on all ranks alike. A variable that a layer assigns itself needs "
    'add_weight(…, aggregation="mean")'
)


def _deviation(variables: List[Any]) -> float:
    """The largest deviation of any rank from rank 0, relative to the
    largest element of the variable. Equal on all ranks. Collective."""
    largest = 0.0
    for variable in variables:
        mine = tf.convert_to_tensor(variable)
        first = from_first_rank(mine)
        if not mine.dtype.is_floating:
            largest = np.inf
            continue
        mine, first = np.asarray(mine, np.float64), np.asarray(first, np.float64)
        scale = np.max(np.abs(first), initial=0.0)
        difference = np.max(np.abs(mine - first), initial=0.0)
        largest = max(largest, 0.0 if difference == 0 else float(np.nan_to_num(difference / max(scale, 1e-30), nan=np.inf)))
    return max(objects.allgather_object(largest))


def _difference(name: str, ranks: List[int], scalars: List[Any]) -> str:
    values = {} if None in scalars else {rank: f"{value:g}" for rank, value in enumerate(scalars)}
    return difference(name, values) or f"{name} on {ranks_in_words(ranks)} is not that of rank 0"


def _warn_rounding(name: str) -> None:
    _lifecycle.warn_once(
        f"{name} differed between the ranks by rounding; all have rank 0's again. That is normal where hosts have "
        "different processors",
    )
