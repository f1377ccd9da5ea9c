# SPDX-License-Identifier: Apache-2.0
"""Names of the strategy's own collectives in graphs.

Keras numbers layers, models and optimizers in the order in which they are created, and TensorFlow prefixes op names
with those numbered names. A rank that has created one more layer would use other names than its peers, and wait
forever. The names made here consist of the function that `run` calls, the purpose of the collective, and a count: they
are equal on all ranks that run the same program. Shapes and types are compared by the collective itself.
"""

from typing import Any, Dict

import tensorflow as tf

from .._running import normalize_name, numbered


def named(role: str) -> Dict[str, Any]:
    """The arguments `name` and `ignore_name_scope` of the next collective for this purpose. Eager collectives have no
    name: their order identifies them."""
    if tf.executing_eagerly():
        return {"name": None, "ignore_name_scope": False}
    where = getattr(tf.distribute.get_replica_context(), "function_name", "strategy")
    return {"name": numbered(normalize_name(f"farandole_{where}_{role}")), "ignore_name_scope": True}
