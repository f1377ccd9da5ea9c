// SPDX-License-Identifier: Apache-2.0
#include "farandole/sdk/transport.h"

#include <fmt/format.h>

#include "farandole/core/error.h"

namespace farandole {

std::unique_ptr<Transfer> Transport::recv_reduce(const Channel& channel, void*, const void*, std::size_t count,
                                                 DType dtype, ReduceOp op) {
  throw InternalError(
      fmt::format("transport {} cannot receive and reduce in one pass: {} elements of {}, {}, from rank {} to rank "
                  "{}; ask fuses_reduction() first",
                  name(), count, farandole::name(dtype), farandole::name(op), channel.source, channel.target));
}

}  // namespace farandole
