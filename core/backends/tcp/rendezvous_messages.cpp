// SPDX-License-Identifier: Apache-2.0
#include "tcp/rendezvous_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "farandole/core/error.h"
#include "farandole/internal/fixed_text.h"

namespace farandole::tcp::rendezvous {
namespace {

constexpr std::size_t kMaxNamed = 16;

}  // namespace

std::string describe(int process, const BuildClaim& build) {
  return fmt::format("process {} (host {}, pid {})", process, build.hostname, build.pid);
}

std::string describe_missing(std::span<const int> processes) {
  const auto named = processes.first(std::min(processes.size(), kMaxNamed));
  const std::string more =
      named.size() < processes.size() ? fmt::format(" and {} more", processes.size() - named.size()) : "";
  return fmt::format("{} {}{} {} not come", processes.size() == 1 ? "process" : "processes", fmt::join(named, ", "),
                     more, processes.size() == 1 ? "has" : "have");
}

Request parse_request(std::span<const std::byte> bytes) {
  Request request;
  if (bytes.size() != sizeof request) {
    throw TransportError(fmt::format("{} bytes where a request has {}", bytes.size(), sizeof request));
  }
  std::memcpy(&request, bytes.data(), sizeof request);
  if (!is_text(request.build.layout) || !is_text(request.build.hostname) || request.build.pid <= 0) {
    throw TransportError("a build, host or process id that is none");
  }
  return request;
}

std::uint32_t parse_start(const std::optional<std::vector<std::byte>>& bytes) {
  std::uint32_t start = 0;
  if (!bytes || bytes->size() != sizeof start) {
    throw TransportError("process 0 has not sent the number of this start of the job");
  }
  std::memcpy(&start, bytes->data(), sizeof start);
  return start;
}

std::vector<Neighbour> parse_neighbours(std::span<const std::byte> bytes, std::span<const int> expected) {
  if (bytes.size() != expected.size() * sizeof(Neighbour)) {
    throw TransportError(fmt::format("process 0 has sent {} bytes of addresses, where {} processes have {}",
                                     bytes.size(), expected.size(), expected.size() * sizeof(Neighbour)));
  }
  std::vector<Neighbour> neighbours(expected.size());
  std::memcpy(neighbours.data(), bytes.data(), bytes.size());
  std::set<int> named;
  for (const Neighbour& each : neighbours) named.insert(each.process);
  if (named != std::set<int>(expected.begin(), expected.end())) {
    throw TransportError(fmt::format("process 0 has sent the addresses of processes {}, not of {}",
                                     fmt::join(named, ", "), fmt::join(expected, ", ")));
  }
  return neighbours;
}

}  // namespace farandole::tcp::rendezvous
