#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mpirun -np 2 strategy_step.py [--strategy farandole|multi_worker]

Median time of a training step of a custom loop (tf.distribute) on a model of 25 million parameters that computes
little: five dense layers of 2236 x 2236, batches of 8 rows in all. Rank 0 prints it.
"""
import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WIDTH, LAYERS, BATCH = 2236, 5, 8


def multi_worker_strategy(port):
    """TensorFlow's own, in a job that mpirun has started. The ranks are workers at 127.0.0.1, at `port` and the next ones."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1")))
    workers = [f"127.0.0.1:{port + each}" for each in range(size)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    import tensorflow as tf

    return tf.distribute.MultiWorkerMirroredStrategy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=("farandole", "multi_worker"), default="farandole")
    parser.add_argument("--port", type=int, default=29610, help="multi_worker: of the first rank")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    if options.strategy == "multi_worker":
        strategy = multi_worker_strategy(options.port)
    else:
        import farandole.tensorflow

        strategy = farandole.tensorflow.MirroredStrategy()
    import keras
    import tensorflow as tf

    with strategy.scope():
        model = keras.Sequential([keras.Input((WIDTH,)), *[keras.layers.Dense(WIDTH) for _ in range(LAYERS)]])
        optimizer = keras.optimizers.SGD(1e-4)
        optimizer.build(model.trainable_variables)

    def replica_step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(rows, training=True))) / (BATCH * WIDTH)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def train(rows):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(rows,)), axis=None)

    dataset = tf.data.Dataset.from_tensors(tf.random.stateless_normal([BATCH, WIDTH], [1, 2])).repeat(options.steps + 5)
    times = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        began = time.perf_counter()
        train(batch).numpy()
        times.append(time.perf_counter() - began)
    if strategy.cluster_resolver.task_id == 0:
        print(f"training step  {statistics.median(times[5:]) * 1e3:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
