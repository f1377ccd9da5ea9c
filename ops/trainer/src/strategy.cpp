// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/strategy.h"

namespace farandole::trainer {

double MirroredStrategy::reduce(Communicator& replica, ReduceOp op, double value) {
  replica.allreduce(BufferView(&value, 1, DType::kF64), op);
  return value;
}

}  // namespace farandole::trainer
