"""tf.data's service over the ranks of jobs."""
