#include "farandole/core/topology.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/core/log.h"

namespace farandole {
namespace {

constexpr const char* kProofName = "farandole-host-proof";
constexpr std::size_t kNonceBytes = sizeof(HostProof::Claim::nonce);

// A digest of any text, zero for none: two 64-bit FNV-1a hashes with different offsets.
void digest(std::string_view text, unsigned char (&result)[16]) {
  if (text.empty()) return;
  std::array<std::uint64_t, 2> hashes{0xcbf29ce484222325U, 0x6c62272e07bb0142U};
  for (const char character : text) {
    for (std::uint64_t& hash : hashes) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3U;
  }
  std::memcpy(result, hashes.data(), sizeof(result));
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

// A memory file that holds `nonce`, or -1.
int publish(const unsigned char* nonce) {
  const int descriptor = memfd_create(kProofName, MFD_CLOEXEC);
  if (descriptor < 0) return -1;
  if (write(descriptor, nonce, kNonceBytes) == static_cast<ssize_t>(kNonceBytes)) return descriptor;
  close(descriptor);
  return -1;
}

bool can_read_nonce(const HostProof::Claim& other) {
  if (other.pid <= 0 || other.descriptor < 0) return false;
  const std::string path = fmt::format("/proc/{}/fd/{}", other.pid, other.descriptor);
  // On another host the number belongs to a stranger, whose devices and pipes must not be opened.
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

HostProof::HostProof(std::string_view host_id) {
  claim_.pid = getpid();
  fill_random(claim_.nonce, kNonceBytes);
  digest(host_id, claim_.host_id);
  if (gethostname(claim_.hostname, sizeof(claim_.hostname) - 1) != 0) std::strcpy(claim_.hostname, "unknown");
  claim_.descriptor = publish(claim_.nonce);
  if (claim_.descriptor < 0) {
    log(LogLevel::kWarning, fmt::format("memory cannot be shared with other processes of this host ({}); they are "
                                        "treated as if they were on other hosts.",
                                        std::strerror(errno)));
  }
}

HostProof::~HostProof() {
  if (claim_.descriptor >= 0) close(claim_.descriptor);
}

bool HostProof::shares_host_with(const Claim& other) const {
  return std::memcmp(claim_.host_id, other.host_id, sizeof(other.host_id)) == 0 && shares_machine_with(other);
}

bool HostProof::shares_machine_with(const Claim& other) const {
  const bool is_own = std::memcmp(claim_.nonce, other.nonce, kNonceBytes) == 0;
  return is_own || can_read_nonce(other);
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
    // Lower processes have their hosts already, so a chain needs no second look.
    const bool is_first = lowest == static_cast<int>(process);
    hosts.push_back(is_first ? host_count++ : hosts[static_cast<std::size_t>(lowest)]);
  }
  return hosts;
}

}  // namespace farandole
