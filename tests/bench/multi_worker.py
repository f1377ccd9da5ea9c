"""TensorFlow's own MultiWorkerMirroredStrategy in a job that mpirun has started, to compare with."""

import json
import os


def strategy(port: int):
    """Makes it. The ranks are workers at 127.0.0.1, at `port` and the following ports."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    workers = [f"127.0.0.1:{port + each}" for each in range(size)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()
