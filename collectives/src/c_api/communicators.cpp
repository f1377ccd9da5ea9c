// SPDX-License-Identifier: Apache-2.0
// The functions of farandole/collectives.h that make, describe and end communicators.
#include <array>
#include <cstring>
#include <vector>

#include "c_api/handles.h"
#include "farandole/collectives.h"
#include "farandole/internal/c_interface.h"
#include "farandole/internal/forked_children.h"

namespace farandole {
namespace {

constexpr std::size_t kMaxSharedText = 4096;  // with the terminating 0, see farandole_join_options

CommunicatorOptions communicator_options(const farandole_comm_options* from, const char* function) {
  const auto known = known_options(from, function, "farandole_comm_options");
  if (known.device_order != FARANDOLE_AGREED_ORDER && known.device_order != FARANDOLE_CALLER_ORDER) {
    throw InvalidArgument(
        fmt::format("{}: device_order is {}; expected a farandole_device_order", function, known.device_order));
  }
  CommunicatorOptions options;
  options.name = text_or_none(known.name);
  options.device_order = static_cast<CommunicatorOptions::DeviceOrder>(known.device_order);
  options.compare = known.compare != 0;
  options.timeout = Seconds(known.timeout_seconds);
  return options;
}

/// Calls the program's function with a buffer for its text.
std::string share_text(const farandole_join_options& options, std::string_view of_rank_0) {
  std::array<char, kMaxSharedText> text{};
  if (of_rank_0.size() >= text.size()) throw InternalError("a text to share is too long");
  of_rank_0.copy(text.data(), of_rank_0.size());
  const int failed = options.share(options.share_context, text.data(), text.size());
  if (failed != 0) {
    throw TransportError(
        fmt::format("joining the job: the program's function `share` has failed with {} while it broadcast a text from "
                    "rank 0",
                    failed));
  }
  text.back() = 0;
  return text.data();
}

WorldOptions world_options(const farandole_join_options* from) {
  const auto known = known_options(from, "farandole_comm_join", "farandole_join_options");
  WorldOptions options;
  if (known.size < 0 || (known.size > 0 && (known.rank < 0 || known.rank >= known.size))) {
    throw InvalidArgument(fmt::format(
        "farandole_comm_join: rank is {} and size {}; expected a rank from 0 to size - 1, or size 0 for any",
        known.rank, known.size));
  }
  if (known.size == 0 && known.share != nullptr) {
    throw InvalidArgument("farandole_comm_join: `share` needs the size of the job, but size is 0");
  }
  if (known.size == 0) return options;
  options.bootstrap = Bootstrap{known.rank, known.size};
  if (!(known.timeout_seconds >= 0)) {
    throw InvalidArgument(
        fmt::format("farandole_comm_join: timeout_seconds is {}; expected a time, or 0 for "
                    "FARANDOLE_TIMEOUT",
                    known.timeout_seconds));
  }
  options.bootstrap->timeout = Seconds(known.timeout_seconds);
  options.bootstrap->timeout_name = known.timeout_name == nullptr ? "timeout_seconds" : known.timeout_name;
  options.bootstrap->advice = text_or_none(known.advice);
  if (known.share != nullptr) {
    options.bootstrap->share = [known](std::string_view text) { return share_text(known, text); };
  }
  return options;
}

/// Stores a new handle in `*to`; null if the communicator has no ranks for this process.
void hand_over(const std::shared_ptr<SharedWorld>& world, Communicator communicator, farandole_comm** to) {
  *to = communicator.valid() ? new farandole_comm{world, std::move(communicator)} : nullptr;
}

}  // namespace
}  // namespace farandole

using namespace farandole;  // NOLINT: this file is the C face of the namespace

extern "C" {

int farandole_comm_join(const farandole_join_options* options, const farandole_comm_options* comm_options,
                        farandole_comm** comm, farandole_error** error) {
  return guarded(error, [&] {
    need(comm, "farandole_comm_join", "comm");
    *comm = nullptr;
    const CommunicatorOptions of_communicator = communicator_options(comm_options, "farandole_comm_join");
    const std::shared_ptr<SharedWorld> world = SharedWorld::join(world_options(options));
    hand_over(world, world->make_communicator(of_communicator), comm);
  });
}

void farandole_comm_free(farandole_comm* comm) {
  (void)guarded(nullptr, [&] { delete comm; });
}

int32_t farandole_comm_rank(const farandole_comm* comm) {
  return comm == nullptr ? -1 : value_or(-1, [&] { return comm->communicator.rank(); });
}
int32_t farandole_comm_size(const farandole_comm* comm) {
  return comm == nullptr ? -1 : value_or(-1, [&] { return comm->communicator.size(); });
}

int farandole_comm_describe(const farandole_comm* comm, int32_t rank, char* text, size_t capacity,
                            farandole_error** error) {
  return guarded(error, [&] {
    need(comm, "farandole_comm_describe", "comm");
    need(text, "farandole_comm_describe", "text");
    if (rank < 0 || rank >= comm->communicator.size()) {
      throw InvalidArgument(
          fmt::format("farandole_comm_describe: rank is {}; expected 0 to {}", rank, comm->communicator.size() - 1));
    }
    if (capacity == 0) throw InvalidArgument("farandole_comm_describe: capacity is 0");
    const std::string description = comm->communicator.describe(rank);
    text[description.copy(text, capacity - 1)] = 0;
  });
}

int farandole_comm_split(farandole_comm* comm, int32_t color, int32_t key, const farandole_comm_options* options,
                         farandole_comm** new_comm, farandole_error** error) {
  return guarded(error, [&] {
    need(comm, "farandole_comm_split", "comm");
    need(new_comm, "farandole_comm_split", "new_comm");
    *new_comm = nullptr;
    hand_over(comm->world, comm->communicator.split(color, key, communicator_options(options, "farandole_comm_split")),
              new_comm);
  });
}

int farandole_comm_of_members(farandole_comm* comm, const int32_t* ranks, int32_t count,
                              const farandole_comm_options* options, farandole_comm** new_comm,
                              farandole_error** error) {
  return guarded(error, [&] {
    constexpr const char* kFunction = "farandole_comm_of_members";
    need(comm, kFunction, "comm");
    need(ranks, kFunction, "ranks");
    need(new_comm, kFunction, "new_comm");
    *new_comm = nullptr;
    if (count < 1 || count > comm->communicator.size()) {
      throw InvalidArgument(
          fmt::format("{}: count is {}; expected 1 to {} ranks", kFunction, count, comm->communicator.size()));
    }
    const std::vector<int> members(ranks, ranks + count);
    hand_over(comm->world,
              Communicator::of_members(comm->communicator, members, communicator_options(options, kFunction)),
              new_comm);
  });
}

void farandole_comm_abort(farandole_comm* comm, const char* text) {
  if (comm == nullptr) return;
  (void)guarded(nullptr, [&] { comm->communicator.abort(text_or_none(text)); });
}

}  // extern "C"
