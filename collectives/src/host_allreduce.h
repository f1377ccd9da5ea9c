// Allreduce of short vectors: the shortest way from the call to the result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "farandole/core/buffer.h"
#include "host_group.h"

namespace farandole {

using Payload = std::array<std::uint64_t, EntryLine::kPayloadWords>;
inline constexpr std::size_t kPayloadBytes = sizeof(Payload);

void store_payload(EntryLine& line, const void* data, std::size_t bytes);
/// `output` = reduction of what all ranks have in their lines of `lane`.
void reduce_payloads(HostGroup& host, int lane, BufferView output, ReduceOp op);

enum class Attempt {
  kDone,
  kEntered,   ///< the others see this rank's entry, but the result is not there
  kNotBegun,  ///< nothing has happened
};
/// A first attempt at operation `number`: enters, and waits for the others as long as `waiter` does not have to sleep.
/// If it takes longer, or ranks called different things, a HostOperation of the same number takes over. What does not
/// fit the entry line travels in the first slot of staging memory, so it must fit that. Never throws.
Attempt try_allreduce(HostGroup& host, std::uint64_t number, std::uint64_t digest, ConstBufferView input,
                      BufferView output, ReduceOp op, Waiter& waiter);

}  // namespace farandole
