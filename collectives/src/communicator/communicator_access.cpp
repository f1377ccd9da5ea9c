// SPDX-License-Identifier: Apache-2.0
// Functions of communicators for the engine and the tools, such as `explain`: the algorithm that would run, and why.
#include "farandole/internal/communicator_access.h"

#include <fmt/core.h>

#include "communicator/communicator_state.h"
#include "device/device_context.h"
#include "device/device_scratch.h"

namespace farandole {

CommunicatorAccess::CommunicatorAccess(const Communicator& communicator) : state_(communicator.state()) {}

namespace {

/// Text that says what chose the algorithm: a setting, the table, or Farandole's own rules. If a table exists but did
/// not choose, the text says why.
std::string explain_reason(const SelectionQuery& asked, const Selection& selection, const Group& group,
                           const std::string& forced) {
  const bool on_host = asked.memory == MemoryKind::kHost;
  const TuningTable* const table = group.table.get();
  if (forced == selection.name()) {
    return fmt::format("forced by a setting ({}){}", forced,
                       table == nullptr ? "" : fmt::format(", which goes before the table {}", table->file));
  }
  if (const TuningTable::Entry* entry = measured_entry(asked)) {
    return fmt::format("chosen by the table {}: {} us were measured for up to {} bytes, with Farandole {} on {}",
                       table->file, entry->time_us, entry->up_to_bytes, table->version, describe(table->shape));
  }
  if (const Method* const method = find_method(asked.collective, forced, asked.memory)) {
    return fmt::format("chosen by Farandole, because {}, which a setting forces, needs {}", forced, method->needs);
  }
  if (find_algorithm(asked.collective, forced) != nullptr) {
    return fmt::format("chosen by Farandole, because {}, which a setting forces, does not work for {} ranks", forced,
                       asked.size);
  }
  if (table == nullptr) return "chosen by Farandole";
  const std::vector<TuningTable::Entry>& entries = table->of(asked.collective, asked.memory);
  const std::string called = fmt::format("{}{}", name(asked.collective), on_host ? "" : " of device memory");
  std::string why;
  if (!group.table_fits) {
    why = fmt::format("is for {}, and this is {}", describe(table->shape), describe(group.shape()));
  } else if (const auto* entry = table->find(asked.collective, asked.bytes, asked.memory)) {
    const Method* const method = find_method(asked.collective, entry->algorithm, asked.memory);
    why = fmt::format(
        "says {}, but {}", entry->algorithm,
        on_host || method == nullptr ? "the ranks share no memory here" : fmt::format("that needs {}", method->needs));
  } else if (entries.empty()) {
    why = fmt::format("has nothing for {}", called);
  } else {
    why = fmt::format("ends at {} bytes for {}", entries.back().up_to_bytes, called);
  }
  return fmt::format("chosen by Farandole, because the table {} {}", table->file, why);
}

}  // namespace

Endpoint& CommunicatorAccess::endpoint() const {
  return state_.endpoint();
}
const Settings& CommunicatorAccess::settings() const {
  return state_.group().endpoint->settings();
}
Work CommunicatorAccess::refuse_allreduce(BufferView values, ReduceOp op, const std::string& why) const {
  Call call;
  call.collective = Collective::kAllreduce;
  call.input = values;
  call.output = values;
  call.op = op;
  return state_.start_refused(call, why);
}
bool CommunicatorAccess::enqueues_directly() const {
  return state_.enqueues_directly();
}
void CommunicatorAccess::start_directly(bool enabled) const {
  state_.start_directly(enabled);
}
std::uint64_t CommunicatorAccess::direct_waits() const {
  return state_.direct_waits();
}
Device& CommunicatorAccess::device() const {
  endpoint().faults().check_world();
  return state_.queue().devices().context().device();
}
Buffer CommunicatorAccess::allocate_pinned(std::size_t bytes) const {
  DeviceContext& context = state_.queue().devices().context();
  Device& device = context.device();
  DeviceScratch memory = context.make_now(fmt::format("to allocate {} bytes of pinned memory", bytes),
                                          [&device, bytes] { return pinned_scratch(device, bytes); });
  return Buffer(memory.release(), bytes, DType::kU8, [&device](void* pinned) { device.release_pinned(pinned); });
}
bool CommunicatorAccess::peer_has_started_next() const {
  return state_.queue().peer_has_started_next();
}
std::string CommunicatorAccess::describe_missing() const {
  return state_.queue().describe_missing();
}
std::string CommunicatorAccess::transport() const {
  return state_.group().shape().transport;
}
TuningShape CommunicatorAccess::tuning_shape() const {
  return state_.group().shape();
}
std::uint64_t CommunicatorAccess::sent_bytes() const {
  endpoint().faults().check_process();
  return state_.sent_bytes();
}

std::string CommunicatorAccess::choose(Collective collective, std::size_t bytes, MemoryKind memory) const {
  endpoint().faults().check_process();
  return std::string(state_.select(state_.query(collective, bytes, memory)).name());
}

std::string CommunicatorAccess::explain(Collective collective, std::size_t bytes, MemoryKind memory) const {
  const SelectionQuery asked = state_.query(collective, bytes, memory);
  const Selection selection = state_.select(asked);
  const bool on_host = memory == MemoryKind::kHost;
  std::string text = fmt::format("{} of {} bytes {}among {} ranks: {}", name(collective), bytes,
                                 on_host ? "" : "of device memory ", state_.group().size(), selection.name());
  if (selection.algorithm != nullptr) {
    text += fmt::format(", {} segment{}", selection.segments, selection.segments == 1 ? "" : "s");
  }
  const std::string& forced = forced_algorithm(collective, settings());
  text += fmt::format("\n{}", explain_reason(asked, selection, state_.group(), forced));
  const bool by_messages = selection.method->explain == nullptr;
  if (!by_messages) {
    text += (state_.group().table ? "\n" : ": ") + selection.method->explain(collective, bytes, state_.group());
  }
  text += "\n";
  text += fmt::format("{} {} ({} us per message, {} GB/s) the cost model expects:\n",
                      by_messages ? "Over" : "By messages, over", on_host ? transport() : "NCCL", asked.link.latency_us,
                      1e-3 / asked.link.us_per_byte);
  for (const Candidate& candidate : candidates(asked, settings())) {
    text += fmt::format("  {:<22} {:>3} segments {:>14.2f} us predicted\n", candidate.algorithm->name,
                        candidate.segments, candidate.predicted_us);
  }
  return text;
}

}  // namespace farandole
