// SPDX-License-Identifier: Apache-2.0
#include "job/host_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "farandole/internal/deadline.h"
#include "farandole/internal/fixed_text.h"
#include "farandole/internal/log.h"
#include "job/allgather_parts.h"

namespace farandole {
namespace {

// Time limit of a connection attempt: much longer than a slow process needs to become ready. A firewall that drops
// packets costs this time, once.
constexpr auto kReachTime = std::chrono::seconds(10);

/// Result of listening in a process: its addresses, or the reason why it cannot listen.
struct Offer {
  tcp::ListenAddresses addresses;
  char fabric[32] = {};  // name of a fabric that is faster than TCP, if the host has such a fabric
  char problem[256] = {};
};

struct Outcome {
  char problem[256] = {};
};

/// Describes the first process whose `text` is not empty: "rank 3 (host node7, pid 4711): …".
template <class Part, std::size_t kSize>
std::string first_of(const std::vector<Part>& parts, char (Part::*text)[kSize], const Topology& topology) {
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::string said = text_of(parts[p].*text);
    if (!said.empty())
      return fmt::format("{}: {}", topology.describe(topology.first_rank_of(static_cast<int>(p))), said);
  }
  return {};
}

/// Name of an active InfiniBand, RoCE or Slingshot device; empty if there is no such device.
std::string find_fabric() {
  namespace fs = std::filesystem;
  std::error_code none;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", none)) {
      std::string state;
      std::getline(std::ifstream(port.path() / "state"), state);
      if (state.find("ACTIVE") != std::string::npos) return device.path().filename();
    }
  }
  for (const auto& device : fs::directory_iterator("/sys/class/cxi", none)) return device.path().filename();
  return {};
}

/// Returns the process of the next host that this process tries to reach. The processes of a host try different
/// processes if the next host has enough processes.
int neighbour_of(int process, const Topology& topology) {
  std::vector<std::vector<int>> hosts(static_cast<std::size_t>(topology.host_count()));
  for (int p = 0; p < topology.process_count(); ++p) {
    hosts[static_cast<std::size_t>(topology.process(p).host_index)].push_back(p);
  }
  const auto host = static_cast<std::size_t>(topology.process(process).host_index);
  const std::vector<int>& here = hosts[host];
  const std::vector<int>& next = hosts[(host + 1) % hosts.size()];
  const auto place = static_cast<std::size_t>(std::find(here.begin(), here.end(), process) - here.begin());
  return next[place % next.size()];
}

/// Connects with another process. Returns an empty text, or the reason of the failure.
std::string reach(tcp::TcpNetwork& network, int process) {
  const Deadline deadline = Deadline::after(kReachTime);
  network.link(process);
  while (!network.is_connected(process)) {
    if (!network.loss_reason(process).empty() || deadline.passed()) return network.connect_failure(process);
    network.advance();
    network.rest(1);
  }
  return {};
}

/// Set-up of TCP between hosts. Each step is collective, so every process takes part in every step even after a failure
/// of its own.
class NetworkSetup {
 public:
  NetworkSetup(const Settings& settings, ProcessGroup& group, const Topology& topology)
      : settings_(settings), group_(group), topology_(topology) {}

  HostNetwork run() {
    const tcp::JobSecret secret = share_secret();
    const std::vector<Offer> offers = listen(secret);
    const std::string fabric = is_auto() ? first_of(offers, &Offer::fabric, topology_) : "";
    if (!fabric.empty())
      return HostNetwork(fmt::format("{} (auto: a faster fabric is there, {})", group_name(), fabric));
    std::string problem = first_of(offers, &Offer::problem, topology_);
    if (!problem.empty()) return refuse(problem);
    for (int p = 0; p < topology_.process_count(); ++p) {
      if (p != group_.process()) network_->set_addresses(p, offers[static_cast<std::size_t>(p)].addresses);
    }
    problem = first_of(reach_neighbour(), &Outcome::problem, topology_);
    if (!problem.empty()) return refuse(problem);
    return {std::move(network_), topology_,
            fmt::format("{}: {} hosts; this process listens at {}", settings_.network.transport, topology_.host_count(),
                        tcp::to_text(offers[static_cast<std::size_t>(group_.process())].addresses.addresses.front()))};
  }

 private:
  bool is_auto() const { return settings_.network.transport == "auto"; }
  std::string group_name() const { return std::string(group_.transport().name()); }

  tcp::JobSecret share_secret() {
    const tcp::JobSecret mine = group_.process() == 0 ? tcp::make_job_secret() : tcp::JobSecret{};
    return allgather_parts(group_, mine).front();
  }

  std::vector<Offer> listen(const tcp::JobSecret& secret) {
    Offer mine;
    write_text(mine.fabric, find_fabric());
    try {
      network_ = std::make_unique<tcp::TcpNetwork>(tcp::TcpNetwork::Options{
          group_.process(), group_.process_count(), secret.key, secret.job, settings_.network.interface,
          settings_.network.peer_timeout,
          [topology = topology_](int process) { return topology.describe(topology.first_rank_of(process)); }});
      mine.addresses = network_->listens_at();
    } catch (const Error& error) {
      write_text(mine.problem, error.message());
    }
    return allgather_parts(group_, mine);
  }

  /// Connects with a process of the next host, and gathers all outcomes. While waiting for the outcomes, answers the
  /// connection attempts of peers.
  std::vector<Outcome> reach_neighbour() {
    Outcome mine;
    const int neighbour = neighbour_of(group_.process(), topology_);
    const std::string why = reach(*network_, neighbour);
    if (!why.empty()) {
      write_text(mine.problem,
                 fmt::format("{} cannot be reached: {}", topology_.describe(topology_.first_rank_of(neighbour)), why));
    }
    auto before = group_.while_waiting({});
    group_.while_waiting([this, &before] {
      if (before) before();
      network_->advance();
    });
    try {
      std::vector<Outcome> all = allgather_parts(group_, mine);
      group_.while_waiting(std::move(before));
      return all;
    } catch (...) {
      group_.while_waiting({});
      throw;
    }
  }

  HostNetwork refuse(const std::string& problem) {
    if (!is_auto()) {
      throw Unsupported(fmt::format(
          "FARANDOLE_NETWORK is {}, but not all processes of this job can use it; {}; FARANDOLE_NETWORK_INTERFACE "
          "chooses another network of the hosts, FARANDOLE_NETWORK=mpi the one of MPI",
          settings_.network.transport, problem));
    }
    if (group_.process() == 0) {
      log(LogLevel::kWarning,
          fmt::format(
              "messages between hosts go by {}, because not all processes can use TCP; {}; FARANDOLE_NETWORK_INTERFACE "
              "chooses another network of the hosts, FARANDOLE_NETWORK=mpi ends this attempt and warning",
              group_name(), problem));
    }
    return HostNetwork(fmt::format("{} (auto: tcp cannot be used; {})", group_name(), problem));
  }

  const Settings& settings_;
  ProcessGroup& group_;
  const Topology& topology_;
  std::unique_ptr<tcp::TcpNetwork> network_;
};

}  // namespace

HostNetwork::HostNetwork(std::unique_ptr<tcp::TcpNetwork> network, const Topology& topology, std::string why)
    : description_(std::move(why)),
      network_(std::move(network)),
      transport_(std::make_unique<tcp::TcpTransport>(*network_)) {
  transport_->set_topology(topology);
}

std::string HostNetwork::describe() const {
  return network_ ? fmt::format("tcp ({}; {})", description_, network_->describe()) : description_;
}

HostNetwork choose_host_network(const Settings& settings, ProcessGroup& group, const Topology& topology) {
  const std::string_view own = group.transport().name();
  if (topology.host_count() == 1) return HostNetwork("none (one host)");
  if (own == "tcp") return HostNetwork("tcp (the processes have met over it)");
  if (settings.network.transport == "mpi") return HostNetwork(fmt::format("{} (FARANDOLE_NETWORK=mpi)", own));
  return NetworkSetup(settings, group, topology).run();
}

}  // namespace farandole
