// SPDX-License-Identifier: Apache-2.0
#include "fake_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <type_traits>

namespace farandole::fake {

namespace {

constexpr std::uint64_t kIdMagic = 0x4c43434e454b4146;  // "FAKENCCL"

struct IdContents {
  std::uint64_t magic;
  std::uint64_t nonce;
  int pid;
  int file;
};
static_assert(sizeof(IdContents) <= sizeof(cuda::ncclUniqueId) && std::is_trivially_copyable_v<IdContents>);

IdContents contents_of(const cuda::ncclUniqueId& id) {
  IdContents contents{};
  std::memcpy(&contents, id.internal, sizeof contents);
  return contents;
}

struct HeldFiles {
  std::mutex mutex;
  std::map<std::uint64_t, int> by_nonce;
};

HeldFiles& held_files() {
  static HeldFiles files;
  return files;
}

Segment* map_segment(int file) {
  void* const memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Segment*>(memory);
}

}  // namespace

std::string text_of(const CollectiveCall& call) {
  constexpr std::array kNames{"a message", "allreduce", "broadcast", "reduce", "allgather", "reduce_scatter"};
  const char* const name = kNames[std::min(static_cast<std::size_t>(call.kind), kNames.size() - 1)];
  if (call.kind == Collective::kNone) return name;
  return fmt::format("{} of {} elements of type {}, operation {}, root {}", name, call.count, call.type, call.op,
                     call.root);
}

void Segment::break_with(const std::string& text) {
  std::uint32_t whole = 0;
  if (!broken.compare_exchange_strong(whole, 1)) return;
  text.copy(why.data(), why.size() - 1);
  broken.store(2, std::memory_order_release);
}

std::string Segment::why_broken() const {
  return broken.load(std::memory_order_acquire) == 2 ? why.data() : "";
}

bool make_id(cuda::ncclUniqueId& id) {
  const int file = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (file < 0) return false;
  // The system commits only the pages that are touched.
  Segment* const segment = ftruncate(file, sizeof(Segment)) == 0 ? map_segment(file) : nullptr;
  if (segment == nullptr) {
    close(file);
    return false;
  }
  std::random_device random;
  const IdContents contents{kIdMagic, static_cast<std::uint64_t>(random()) << 32 | random(), getpid(), file};
  segment->nonce = contents.nonce;
  close_segment(segment);
  id = {};
  std::memcpy(id.internal, &contents, sizeof contents);
  const std::lock_guard guard(held_files().mutex);
  held_files().by_nonce[contents.nonce] = file;
  return true;
}

Segment* open_segment(const cuda::ncclUniqueId& id) {
  const IdContents contents = contents_of(id);
  if (contents.magic != kIdMagic) return nullptr;
  const std::string path = fmt::format("/proc/{}/fd/{}", contents.pid, contents.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  // The descriptor's number may meanwhile belong to another file.
  const bool is_large_enough = lseek(file, 0, SEEK_END) == static_cast<off_t>(sizeof(Segment));
  Segment* const segment = is_large_enough ? map_segment(file) : nullptr;
  close(file);
  if (segment == nullptr || segment->nonce == contents.nonce) return segment;
  close_segment(segment);
  return nullptr;
}

void forget_id(const cuda::ncclUniqueId& id) {
  const std::lock_guard guard(held_files().mutex);
  const auto found = held_files().by_nonce.find(contents_of(id).nonce);
  if (found == held_files().by_nonce.end()) return;
  close(found->second);
  held_files().by_nonce.erase(found);
}

void close_segment(Segment* segment) {
  munmap(segment, sizeof(Segment));
}

int watch_process(int pid) {
  if (pid == getpid()) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

bool has_ended(int watch) {
  pollfd entry{watch, POLLIN, 0};
  return watch >= 0 && poll(&entry, 1, 0) == 1;
}

}  // namespace farandole::fake
