#include "host_allreduce.h"

#include <cstring>
#include <vector>

#include "farandole/core/reduce.h"

namespace farandole {

void store_payload(EntryLine& line, const void* data, std::size_t bytes) {
  Payload payload{};
  if (bytes > 0) std::memcpy(payload.data(), data, bytes);
  for (std::size_t i = 0; i < payload.size(); ++i) line.payload[i].store(payload[i], std::memory_order_relaxed);
}

void reduce_payloads(HostGroup& host, int lane, BufferView output, ReduceOp op) {
  constexpr std::size_t kFew = 16;
  std::array<Payload, kFew> few;
  std::vector<Payload> many;
  const auto size = static_cast<std::size_t>(host.size());
  if (size > kFew) many.resize(size);
  Payload* payloads = size > kFew ? many.data() : few.data();
  for (std::size_t local = 0; local < size; ++local) {
    const EntryLine& line = host.lane(static_cast<int>(local), lane).entry;
    for (std::size_t i = 0; i < EntryLine::kPayloadWords; ++i) {
      payloads[local][i] = line.payload[i].load(std::memory_order_relaxed);
    }
    host.pointers()[local] = payloads[local].data();
  }
  reduce_many(output.data, host.pointers(), output.count, output.dtype, op);
}

Attempt try_allreduce(HostGroup& host, std::uint64_t number, std::uint64_t digest, ConstBufferView input,
                      BufferView output, ReduceOp op, Waiter& waiter) {
  if (!host.connect()) return Attempt::kNotBegun;
  const int lane = HostGroup::lane_of(number);
  if (host.first_behind(host.begin(lane, number)) >= 0) return Attempt::kNotBegun;
  const std::size_t bytes = input.size_in_bytes();
  const bool in_payload = bytes <= kPayloadBytes;
  EntryLine& mine = host.lane(host.rank(), lane).entry;
  mine.digest.store(digest, std::memory_order_relaxed);
  mine.completed.store(host.completed(), std::memory_order_relaxed);
  if (in_payload) {
    store_payload(mine, input.data, bytes);
  } else {
    std::memcpy(host.input_slot(host.rank(), lane, 0), input.data, bytes);
  }
  mine.number.store(number, std::memory_order_seq_cst);
  host.nudge();
  for (int local = 0; local < host.size(); ++local) {
    const EntryLine& line = host.lane(local, lane).entry;
    while (line.number.load(std::memory_order_acquire) != number) {
      if (waiter.sleeps_next()) return Attempt::kEntered;
      (void)waiter.rest();
    }
    if (local == host.rank()) continue;
    host.heard(local, line.completed.load(std::memory_order_relaxed));
    if (line.digest.load(std::memory_order_relaxed) != digest) return Attempt::kEntered;
  }
  if (in_payload) {
    reduce_payloads(host, lane, output, op);
  } else {
    for (int local = 0; local < host.size(); ++local) {
      host.pointers()[static_cast<std::size_t>(local)] = host.input_slot(local, lane, 0);
    }
    reduce_many(output.data, host.pointers(), output.count, output.dtype, op);
  }
  host.end(lane);
  return Attempt::kDone;
}

}  // namespace farandole
