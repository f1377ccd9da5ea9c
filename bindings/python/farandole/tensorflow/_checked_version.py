# SPDX-License-Identifier: Apache-2.0
"""Looks at the version of TensorFlow. Imported before what uses more of TensorFlow, which an old one may not have.

Raises ImportError for one that is too old, and warns of one that is newer than those that are tested.
"""

import tensorflow as tf

from .. import _engine, _files
from ._op_library import why_not_tested

_doubt = why_not_tested(tf.version.VERSION)
if _doubt is not None and _files.is_first_rank():
    _engine.log("warning", _doubt)
