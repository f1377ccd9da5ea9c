# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's ops in a forked child of a rank."""

import support

support.need("numpy", "tensorflow")

import tensorflow as tf
from forking import expect_refused, in_child

import farandole
import farandole.tensorflow as hvd


class ForkedTest(support.RankedTest):
    def test_ops_say_so(self):
        self.assertEqual(float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)), hvd.size())
        values = tf.ones([100_000])

        def body():
            assert not hvd.is_initialized()
            for call in (
                lambda: hvd.allreduce(values),
                lambda: hvd.grouped_allreduce([values, values]),
                lambda: hvd.allgather(values),
                lambda: hvd.broadcast(values, 0),
                lambda: hvd.alltoall(values),
                lambda: hvd.reducescatter(values),
                hvd.join,
                hvd.rank,
            ):
                expect_refused(call)
            assert int(hvd.rank_op()) == -1

        self.assertEqual(in_child(body), "")
        self.assertEqual(float(hvd.allreduce(values, op=hvd.Sum)[-1]), hvd.size())

    def test_a_job_of_itself(self):
        def body():
            farandole.init()
            assert float(hvd.allreduce(tf.constant(5.0), op=hvd.Sum)) == 5.0
            farandole.shutdown()

        self.assertEqual(in_child(body), "")
        self.assertEqual(float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)), hvd.size())


if __name__ == "__main__":
    support.main()
