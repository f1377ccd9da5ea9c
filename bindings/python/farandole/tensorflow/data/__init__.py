# SPDX-License-Identifier: Apache-2.0
"""tf.data's service over the ranks of jobs."""
