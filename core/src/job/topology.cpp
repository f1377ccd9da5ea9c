// SPDX-License-Identifier: Apache-2.0
#include "farandole/core/topology.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/internal/digest.h"
#include "farandole/internal/memory_file.h"

namespace farandole {
namespace {

constexpr const char* kProofName = "farandole-host-proof";
constexpr std::size_t kNonceBytes = sizeof(HostProof::Claim::nonce);

// 128 bits: two digests of the text with different starts. All zero for an empty text.
void digest(std::string_view text, unsigned char (&result)[16]) {
  if (text.empty()) return;
  const std::array<std::uint64_t, 2> halves{Digest().add(text).value(), Digest(0x6c62272e07bb0142U).add(text).value()};
  std::memcpy(result, halves.data(), sizeof(result));
}

void fill_random(unsigned char* bytes, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes + done, count - done, 0);
    if (got < 0 && errno != EINTR) {
      throw InternalError(fmt::format("getrandom failed while this process joined its job: {}.", std::strerror(errno)));
    }
    if (got > 0) done += static_cast<std::size_t>(got);
  }
}

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

// Network addresses of this machine, without the loopback's. They tell cloned machines apart.
std::string addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  std::vector<std::string> texts;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const bool is_v4 = each->ifa_addr->sa_family == AF_INET;
    if (!is_v4 && each->ifa_addr->sa_family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t length = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0) {
      texts.emplace_back(text.data());
    }
  }
  freeifaddrs(first);
  std::sort(texts.begin(), texts.end());
  return fmt::format("{}", fmt::join(texts, " "));
}

template <std::size_t n>
bool is_same(const unsigned char (&one)[n], const unsigned char (&other)[n]) {
  return std::memcmp(one, other, n) == 0;
}
template <std::size_t n>
bool is_same_and_known(const unsigned char (&one)[n], const unsigned char (&other)[n]) {
  constexpr unsigned char kUnknown[n] = {};
  return is_same(one, other) && !is_same(one, kUnknown);
}

// Creates a memory file that holds `nonce`; returns its descriptor, or -1.
int publish(const unsigned char* nonce) {
  const int descriptor = create_memory_file(kProofName);
  if (descriptor < 0) return -1;
  if (write(descriptor, nonce, kNonceBytes) == static_cast<ssize_t>(kNonceBytes)) return descriptor;
  close(descriptor);
  return -1;
}

bool can_read_nonce(const HostProof::Claim& other) {
  if (other.pid <= 0 || other.descriptor < 0) return false;
  const std::string path = fmt::format("/proc/{}/fd/{}", other.pid, other.descriptor);
  // If the claim is from another host, the process id belongs to an unrelated process here. Its devices and pipes must
  // not be opened, so check the name of the file first.
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  if (length < 0) return false;
  const std::string_view name(target.data(), static_cast<std::size_t>(length));
  if (name.substr(0, name.find(' ')) != fmt::format("/memfd:{}", kProofName)) return false;

  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return false;
  std::array<unsigned char, kNonceBytes> seen{};
  const ssize_t got = pread(descriptor, seen.data(), seen.size(), 0);
  close(descriptor);
  return got == static_cast<ssize_t>(kNonceBytes) && std::memcmp(seen.data(), other.nonce, kNonceBytes) == 0;
}

}  // namespace

Topology::Topology(std::vector<ProcessInfo> processes) : processes_(std::move(processes)) {
  std::vector<int> ranks_of_host;
  for (std::size_t process = 0; process < processes_.size(); ++process) {
    const ProcessInfo& info = processes_[process];
    if (info.replicas < 1 || info.host_index < 0 || info.host_index > host_count_) {
      throw InternalError(fmt::format(
          "process {} cannot have {} replicas on host {}: a process has at least one replica, and hosts are "
          "numbered by their first process (the next new one is {}).",
          process, info.replicas, info.host_index, host_count_));
    }
    host_count_ = std::max(host_count_, info.host_index + 1);
    ranks_of_host.resize(static_cast<std::size_t>(host_count_));
    int& on_host = ranks_of_host[static_cast<std::size_t>(info.host_index)];
    first_rank_.push_back(size());
    for (int replica = 0; replica < info.replicas; ++replica) {
      ranks_.push_back({static_cast<int>(process), replica, info.host_index, on_host++, 0});
    }
  }
  for (RankInfo& rank : ranks_) rank.local_size = ranks_of_host[static_cast<std::size_t>(rank.host_index)];
}

std::string Topology::describe(int rank) const {
  if (rank < 0 || rank >= size()) return fmt::format("rank {} (not in this job of {})", rank, size());
  const ProcessInfo& process = processes_[static_cast<std::size_t>(this->rank(rank).process)];
  return fmt::format("rank {} (host {}, pid {})", rank, process.hostname, process.pid);
}

HostProof::HostProof(std::string_view host_id, bool publishes) {
  claim_.pid = getpid();
  fill_random(claim_.nonce, kNonceBytes);
  digest(host_id, claim_.host_id);
  if (gethostname(claim_.hostname, sizeof(claim_.hostname) - 1) != 0) std::strcpy(claim_.hostname, "unknown");
  if (const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id"); !boot.empty()) {
    digest(fmt::format("{} {} {}", boot, claim_.hostname, addresses()), claim_.machine);
  }
  // On failure the digest `machine` still identifies the host; SharedMemory reports that memory files do not work.
  if (publishes) claim_.descriptor = publish(claim_.nonce);
}

HostProof::~HostProof() {
  if (claim_.descriptor >= 0) close(claim_.descriptor);
}

bool HostProof::shares_host_with(const Claim& other) const {
  return is_same(claim_.host_id, other.host_id) && shares_machine_with(other);
}

bool HostProof::shares_machine_with(const Claim& other) const {
  return is_same(claim_.nonce, other.nonce) || is_same_and_known(claim_.machine, other.machine) ||
         can_read_nonce(other);
}

std::vector<int> host_indices(std::span<const int> lowest_neighbour) {
  std::vector<int> hosts;
  int host_count = 0;
  for (std::size_t process = 0; process < lowest_neighbour.size(); ++process) {
    const int lowest = lowest_neighbour[process];
    if (lowest < 0 || lowest > static_cast<int>(process)) {
      throw InternalError(
          fmt::format("process {} names process {} as its lowest neighbour on the same host; it must be "
                      "between 0 and {}.",
                      process, lowest, process));
    }
    // Lower processes have their host index already, so chains of neighbours resolve in one pass.
    const bool is_first = lowest == static_cast<int>(process);
    hosts.push_back(is_first ? host_count++ : hosts[static_cast<std::size_t>(lowest)]);
  }
  return hosts;
}

}  // namespace farandole
