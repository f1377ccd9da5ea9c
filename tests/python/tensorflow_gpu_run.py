# SPDX-License-Identifier: Apache-2.0
"""Runs tests that were not written for GPUs on the fake GPU. TensorFlow places each op there that has a kernel for it.

    local_job.sh -n 2 python tensorflow_gpu_run.py tensorflow_ops_test tensorflow_functions_test
    local_job.sh -n 2 python tensorflow_gpu_run.py --as-horovod horovod_conformance/run.py
"""

import sys

from tensorflow_gpu_support import support, tf

from farandole import as_horovod

if __name__ == "__main__":
    tf.config.set_soft_device_placement(True)
    if sys.argv[1] == "--as-horovod":
        as_horovod.main(sys.argv[2:])
    else:
        support.main(modules=sys.argv[1:])
