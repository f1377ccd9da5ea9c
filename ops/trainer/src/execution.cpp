// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

constexpr std::size_t kAlignment = 64;
/// Smallest block, so that many small needs share one.
constexpr std::size_t kMinBlockBytes = std::size_t{64} << 10;

}  // namespace

std::size_t Workspace::bytes() const {
  std::size_t sum = 0;
  for (const Buffer& block : blocks_) sum += block.count();
  return sum;
}

void* Workspace::take(const Scope& scope, std::size_t count, std::size_t element_bytes) {
  if (&scope != innermost_) {
    throw InvalidArgument(
        "scratch memory was asked for in a scope in which another scope has begun; take it from the inner "
        "scope, or before that begins");
  }
  if (count > (std::numeric_limits<std::size_t>::max() - kAlignment) / element_bytes) throw std::bad_alloc();
  const std::size_t bytes = count * element_bytes;
  settle();
  const std::size_t needed = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (used_.block < blocks_.size() && used_.offset + needed > blocks_[used_.block].count()) {
    used_ = {used_.block + 1, 0};
  }
  if (used_.block == blocks_.size()) {
    blocks_.push_back(allocate(memory_, std::max(needed, kMinBlockBytes), DType::kU8));
  }
  void* const result = static_cast<std::byte*>(blocks_[used_.block].view().data) + used_.offset;
  used_.offset += needed;
  return result;
}

void Workspace::settle() {
  const bool is_in_use = used_.block != 0 || used_.offset != 0;
  if (is_in_use || blocks_.size() <= 1) return;
  const std::size_t all = this->bytes();
  blocks_.clear();
  blocks_.push_back(allocate(memory_, all, DType::kU8));
}

Execution::Execution(TensorMemory memory, StreamView stream, Precision precision)
    : memory_(std::move(memory)),
      stream_(stream),
      precision_(precision),
      workspace_(std::make_shared<Workspace>(memory_)) {
  if (memory_.space == stream_.space) return;
  throw InvalidArgument(fmt::format("an execution in {} needs a stream of the same device, got {}",
                                    farandole::describe(memory_.space),
                                    stream_.valid() ? "one of " + farandole::describe(stream_.space) : "none"));
}

Execution::Execution(TensorMemory memory, StreamView stream, Precision precision, std::shared_ptr<Workspace> workspace,
                     std::shared_ptr<const DeviceKernels> kernels, std::shared_ptr<MemoryLog> log)
    : Execution(std::move(memory), stream, precision) {
  workspace_ = std::move(workspace);
  kernels_ = std::move(kernels);
  log_ = std::move(log);
}

void Execution::require(MemorySpace space, const char* what) const {
  if (space == memory_.space) return;
  throw InvalidArgument(fmt::format("{} lies in {}, but this replica computes in {}; copy it there first", what,
                                    farandole::describe(space), farandole::describe(memory_.space)));
}

}  // namespace farandole::trainer
