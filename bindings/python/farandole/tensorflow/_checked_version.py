# SPDX-License-Identifier: Apache-2.0
"""Checks the version of TensorFlow. Imported before modules that need names which an old TensorFlow may not have.

Raises ImportError for a version that is too old, and logs a warning for a version that is newer than the tested
versions.
"""

from .. import _engine, _files, _quiet
from ._op_library import why_not_tested

_quiet.before_import()

import tensorflow as tf  # noqa: E402

_doubt = why_not_tested(tf.version.VERSION)
if _doubt is not None and _files.is_first_rank():
    _engine.log("warning", _doubt)
