// SPDX-License-Identifier: Apache-2.0
// Memory shared by the processes of a host: free ranges, arenas, and arenas in a forked child.
#include "farandole/internal/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "sanitizers.h"
#include "shm/arena.h"
#include "shm/extents.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const SharedMemory::Options kAlone, kOfTwo{.sharing = 2, .copies = true};
constexpr std::size_t kSmall = 1000, kLarge = 1 << 20;  // the large one goes back to the system when released

/// Reference implementation of Extents, unit by unit.
class Model {
 public:
  explicit Model(std::size_t units) : used_(units, false) {}
  std::optional<std::uint64_t> take(std::size_t units, std::size_t alignment) {
    for (std::size_t at = 0; at + units <= used_.size(); at += alignment) {
      const auto first = used_.begin() + static_cast<std::ptrdiff_t>(at);
      if (std::find(first, first + static_cast<std::ptrdiff_t>(units), true) !=
          first + static_cast<std::ptrdiff_t>(units)) {
        continue;
      }
      std::fill_n(first, units, true);
      return at;
    }
    return std::nullopt;
  }
  void give_back(std::size_t at, std::size_t units) {
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(at), units, false);
  }
  std::size_t free() const { return static_cast<std::size_t>(std::count(used_.begin(), used_.end(), false)); }

 private:
  std::vector<bool> used_;
};

TEST(Extents, AreTheLowestThatFitAndMerge) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  constexpr std::size_t kUnits = 512;
  Extents extents(0, kUnits);
  Model model(kUnits);
  std::vector<std::pair<std::uint64_t, std::size_t>> taken;
  for (int i = 0; i < 20'000; ++i) {
    // Fills up and empties in turn.
    const bool takes = taken.empty() || random() % 100 < (i / 200 % 2 == 0 ? 70U : 30U);
    if (takes) {
      const std::size_t units = 1 + random() % 40, alignment = std::size_t{1} << random() % 5;
      const auto expected = model.take(units, alignment);
      ASSERT_EQ(extents.take(units, alignment), expected);
      if (expected) taken.emplace_back(*expected, units);
    } else {
      std::swap(taken[random() % taken.size()], taken.back());
      extents.give_back(taken.back().first, taken.back().second);
      model.give_back(taken.back().first, taken.back().second);
      taken.pop_back();
    }
    ASSERT_EQ(extents.free_bytes(), model.free());
  }
  for (const auto& [at, units] : taken) extents.give_back(at, units);
  EXPECT_EQ(extents.take(kUnits, 1), 0U) << "the free extents have not merged";
  EXPECT_EQ(extents.free_bytes(), 0U);
}

TEST(SharedMemory, KnowsAddressesInTheArena) {
  SharedMemory memory(1, 0, kAlone);
  const std::uint64_t offset = memory.allocate(kSmall);
  std::byte* data = memory.at(0, offset);
  EXPECT_EQ(memory.offset_of(data, kSmall), offset);
  EXPECT_EQ(memory.offset_of(data + 3, 5), offset + 3);
  const std::size_t size = memory.claim().bytes;
  EXPECT_EQ(memory.offset_of(memory.at(0, size - 8), 8), size - 8);
  EXPECT_EQ(memory.offset_of(memory.at(0, size - 8), 9), std::nullopt) << "it ends outside";
  EXPECT_EQ(memory.offset_of(memory.at(0, 0) - 1, 1), std::nullopt);
  EXPECT_EQ(memory.offset_of(memory.at(0, size) + 1, 0), std::nullopt);
  const int local = 0;
  EXPECT_EQ(memory.offset_of(&local, sizeof local), std::nullopt);
  EXPECT_EQ(memory.offset_of(nullptr, 0), std::nullopt);
}

void expect_zero_each_time(SharedMemory& memory, std::size_t bytes) {
  std::uint64_t former = 0;
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t offset = memory.allocate(bytes);
    if (round > 0) {
      EXPECT_EQ(offset, former) << "released memory is not used again";
    }
    former = offset;
    std::byte* data = memory.at(0, offset);
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(data, 0x5a, bytes);
    memory.release(offset, bytes);
  }
}

TEST(SharedMemory, MemoryIsZeroOnEachAllocation) {
  for (const bool is_shared : {false, true}) {
    SharedMemory memory(2, 0, is_shared ? kOfTwo : kAlone);
    ASSERT_EQ(memory.claim().descriptor >= 0, is_shared) << memory.problem();
    for (const std::size_t bytes : {kSmall, kLarge}) expect_zero_each_time(memory, bytes);
  }
}

/// Memory of this process that exists, in bytes.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t mapped = 0, resident = 0;
  file >> mapped >> resident;
  return resident * 4096;
}

TEST(SharedMemory, GoesBackToTheSystem) {
  if (test::kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer keeps several times the memory that is written";
  for (const SharedMemory::Options& options : {kAlone, kOfTwo}) {
    SharedMemory memory(2, 0, options);
    Buffer window = memory.allocate(64 * kLarge, DType::kU8);
    const std::size_t before = resident_bytes();
    std::memset(window.view().data, 1, 64 * kLarge);
    EXPECT_GE(resident_bytes(), before + 60 * kLarge);
    window = Buffer();
    EXPECT_LT(resident_bytes(), before + 4 * kLarge);
  }
}

TEST(SharedMemory, FileGrowsWithAllocationsAndCannotShrink) {
  SharedMemory memory(2, 0, kOfTwo);
  const int file = memory.claim().descriptor;
  const auto size = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(file, &status), 0);
    return static_cast<std::size_t>(status.st_size);
  };
  EXPECT_LT(size(), 4 * kLarge) << "what nobody has asked for is no memory";
  EXPECT_GT(memory.claim().bytes, size());
  const Buffer window = memory.allocate(10 * kLarge, DType::kU8);
  EXPECT_GE(size(), 10 * kLarge);
  EXPECT_NE(ftruncate(file, 0), 0) << "peers would be killed";
  EXPECT_EQ(fcntl(file, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_SEAL);
}

/// The flags of the mapping at `address`, as in /proc/self/smaps.
std::string mapping_flags(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) is_it = wanted >= first && wanted < end;
    if (is_it && line.starts_with("VmFlags:")) return line;
  }
  return {};
}

TEST(SharedMemory, CoreDumpsLeaveItOut) {
  SharedMemory alone(1, 0, kAlone), memory(2, 0, kOfTwo), peer(2, 1, kOfTwo);
  ASSERT_EQ(memory.map(1, peer.claim()), "");
  for (const std::byte* base : {alone.at(0, 0), memory.at(0, 0), memory.at(1, 0)}) {
    EXPECT_THAT(mapping_flags(base), HasSubstr(" dd"));
  }
}

TEST(Arena, StrictCommitReservesOrRefusesOnAllocation) {
  ArenaPlan plan = plan_arena(process_limits(), 2, 0);
  plan.commits_strictly = true;
  Arena arena(plan);
  const auto blocks = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(arena.descriptor(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  };
  const std::size_t before = blocks();
  const std::uint64_t offset = arena.allocate(8 * kLarge, 0);
  EXPECT_GE(blocks(), before + 8 * kLarge);
  arena.release(offset, 8 * kLarge);
  EXPECT_LE(blocks(), before + kLarge);
}

TEST(SharedMemory, WindowsLieApartAndAligned) {
  SharedMemory memory(1, 0, kAlone);
  std::vector<Buffer> windows;
  for (const std::size_t count : {1, 31, 32, 33, 70'000, 1}) windows.push_back(memory.allocate(count, DType::kF32));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (Buffer& window : windows) {
    const auto offset = memory.offset_of(window.view().data, window.view().size_in_bytes());
    ASSERT_TRUE(offset);
    EXPECT_EQ(*offset % 128, 0U);
    ranges.emplace_back(*offset, *offset + window.view().size_in_bytes());
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST(SharedMemory, TooLargeAllocationErrorNamesAvailableMemory) {
  SharedMemory memory(1, 0, kAlone);
  const std::uint64_t limit = memory.plan().windows_bytes;
  try {
    memory.allocate(limit + 1);
    FAIL() << "no exception";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("{} bytes does not fit", limit + 1)),
                                    HasSubstr(fmt::format("the limit is {} bytes (memory of the ", limit))));
  }
  const std::uint64_t first = memory.allocate(limit / 2);
  const std::uint64_t second = memory.allocate(limit / 3);
  EXPECT_THROW(memory.allocate(limit / 3), InvalidArgument) << "the sum counts";
  memory.release(second, limit / 3);
  memory.release(memory.allocate(limit / 3), limit / 3);
  memory.release(first, limit / 2);
  EXPECT_THROW(memory.allocate(std::size_t{1} << 62, DType::kF64), InvalidArgument);
}

TEST(SharedMemory, ProcessesSeeEachOthersArenasAndShareTheLimit) {
  SharedMemory mine(2, 0, kOfTwo), theirs(2, 1, kOfTwo);
  EXPECT_FALSE(mine.is_mapped(1));
  ASSERT_EQ(mine.map(1, theirs.claim()), "");
  const std::uint64_t offset = theirs.allocate(kSmall);
  std::strcpy(reinterpret_cast<char*>(theirs.at(1, offset)), "hello");
  EXPECT_STREQ(reinterpret_cast<char*>(mine.at(1, offset)), "hello");
  EXPECT_NE(mine.at(1, offset), theirs.at(1, offset)) << "a mapping of its own";
  const std::uint64_t limit = mine.plan().windows_bytes;
  const std::uint64_t large = theirs.allocate(limit / 3 * 2);
  EXPECT_THROW(mine.allocate(limit / 3 * 2), InvalidArgument);
  theirs.release(large, limit / 3 * 2);
  mine.release(mine.allocate(limit / 3 * 2), limit / 3 * 2);
  mine.unmap_peers();
  EXPECT_FALSE(mine.is_mapped(1));
  EXPECT_TRUE(mine.is_mapped(0));
}

TEST(SharedMemory, DescriptorThatIsNoArenaIsNotMapped) {
  SharedMemory memory(2, 0, kOfTwo);
  const int other = open("/dev/zero", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(memory.map(1, {getpid(), other, kLarge, 0, {}}), HasSubstr("/dev/zero"));
  close(other);
  EXPECT_FALSE(memory.is_mapped(1));
  EXPECT_THAT(memory.map(1, {getpid(), -1, kLarge, 0, {}}), HasSubstr("no memory that can be shared"));
  EXPECT_THAT(memory.map(1, {getpid(), 1 << 20, kLarge, 0, {}}), HasSubstr("No such file"));
  // A process of the same number in another PID namespace has another arena.
  SharedMemory::Claim own = memory.claim();
  own.nonce[1] ^= 1;
  EXPECT_THAT(memory.map(1, own), HasSubstr("is the memory of another process"));
  EXPECT_FALSE(memory.is_mapped(1));
}

TEST(SharedMemory, TheKernelCopiesOrdinaryMemoryOfOtherProcesses) {
  SharedMemory memory(2, 0, kOfTwo), peer(2, 1, kOfTwo);
  std::vector<int> values(kLarge, 1), copy(kLarge, 0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  SharedMemory::Claim claim = peer.claim();
  claim.descriptor = dup(claim.descriptor);  // of which the child does not let go
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::fill(values.begin(), values.end(), 2);
    (void)!write(ready[1], "", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  claim.pid = child;
  ASSERT_EQ(memory.map(1, claim), "");
  const bool can_copy = memory.can_copy();
  const auto copy_from = [&](const void* from) {
    return memory.copy_from(1, reinterpret_cast<std::uintptr_t>(from), copy.data(), kLarge * sizeof(int));
  };
  const int whole = copy_from(values.data()), nowhere = copy_from(nullptr);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const int gone = copy_from(values.data());
  for (const int descriptor : {ready[0], ready[1], claim.descriptor}) close(descriptor);
  if (!can_copy) GTEST_SKIP() << "processes may not read each other's memory here";
  EXPECT_EQ(whole, 0);
  EXPECT_THAT(copy, testing::Each(2));
  EXPECT_EQ(nowhere, EFAULT);
  EXPECT_EQ(gone, ESRCH);
  memory.forbid_copies();
  EXPECT_FALSE(memory.can_copy());
}

TEST(SharedMemory, RetiredMemoryIsUsedAgainOnceNobodyUsesIt) {
  SharedMemory memory(1, 0, kAlone);
  bool is_unused = false;
  const std::uint64_t retired = memory.allocate(kSmall);
  memory.retire(retired, kSmall, [&] { return is_unused; });
  const std::uint64_t other = memory.allocate(kSmall);
  EXPECT_NE(other, retired);
  is_unused = true;
  EXPECT_EQ(memory.allocate(kSmall), retired);
}

TEST(SharedMemory, QuarantinedMemoryIsNotGivenOutAgain) {
  SharedMemory memory(1, 0, kAlone);
  const std::uint64_t before = memory.allocate(kSmall);
  Buffer window = memory.allocate(kLarge, DType::kU8);
  std::byte* data = static_cast<std::byte*>(window.view().data);
  std::memset(data, 7, kLarge);
  memory.quarantine();
  memory.release(before, kSmall);
  const auto offset = memory.offset_of(data, kLarge);
  window = Buffer();
  for (int i = 0; i < 100; ++i) {
    EXPECT_NE(memory.allocate(kSmall), before);
    const std::uint64_t large = memory.allocate(kLarge);
    EXPECT_TRUE(large + kLarge <= *offset || large >= *offset + kLarge);
  }
  EXPECT_EQ(data[5], std::byte{7}) << "it is not taken from who may still use it";
}

TEST(SharedMemory, AWindowMayOutliveIt) {
  auto memory = std::make_unique<SharedMemory>(1, 0, kAlone);
  Buffer window = memory->allocate(kLarge, DType::kU8);
  memory.reset();
  std::memset(window.view().data, 1, kLarge);
}

/// Runs `work` in a forked child. @returns what it returns, or -1 if it was killed
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    int result = 100;
    try {
      result = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(result);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

bool is_filled(const std::byte* data, std::size_t bytes, int value) {
  return std::all_of(data, data + bytes, [value](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(SharedMemory, AForkedChildHasItsOwn) {
  for (const SharedMemory::Options& options : {kAlone, kOfTwo}) {
    SharedMemory memory(2, 0, options), peer(2, 1, kOfTwo);
    ASSERT_EQ(memory.map(1, peer.claim()), "");
    const std::uint64_t offset = memory.allocate(kLarge);
    std::byte* data = memory.at(0, offset);
    std::memset(data, 1, kLarge);
    const std::uint64_t allocated = memory.header().allocated_bytes;
    EXPECT_EQ(in_child([&] {
                if (!is_filled(data, kLarge, 1)) return 1;
                std::memset(data, 2, kLarge);
                unsigned char resident = 0;
                if (mincore(memory.at(1, 0), 1, &resident) == 0) return 2;  // it sees nothing of other processes
                return data[kLarge - 1] == std::byte{2} ? 0 : 3;
              }),
              0);
    EXPECT_TRUE(is_filled(data, kLarge, 1)) << "the child wrote the parent's memory";
    EXPECT_EQ(memory.header().allocated_bytes, allocated);
    const std::byte* next = memory.at(0, memory.allocate(kLarge));
    EXPECT_TRUE(is_filled(next, kLarge, 0));
  }
}

TEST(SharedMemory, AForkedChildThatFreesAWindowLeavesTheParentsAlone) {
  for (const SharedMemory::Options& options : {kAlone, kOfTwo}) {
    SharedMemory memory(2, 0, options);
    Buffer window = memory.allocate(kLarge, DType::kU8);
    auto* data = static_cast<std::byte*>(window.view().data);
    std::memset(data, 1, kLarge);
    EXPECT_EQ(in_child([&] {
                window = Buffer();
                return 0;
              }),
              0);
    EXPECT_TRUE(is_filled(data, kLarge, 1)) << "the child emptied the parent's window";
  }
}

TEST(SharedMemory, AForkedChildGetsNoWindows) {
  for (const SharedMemory::Options& options : {kAlone, kOfTwo}) {
    SharedMemory memory(2, 0, options);
    EXPECT_EQ(in_child([&] {
                try {
                  (void)memory.allocate(kLarge, DType::kU8);
                } catch (const InvalidArgument& error) {
                  return std::strstr(error.what(), "forked") != nullptr ? 0 : 1;
                }
                return 2;
              }),
              0);
  }
}

TEST(SharedMemory, AForkedChildMayEndInGoodOrder) {
  auto memory = std::make_unique<SharedMemory>(2, 0, kOfTwo);
  Buffer window = memory->allocate(kLarge, DType::kU8);
  std::memset(window.view().data, 1, kLarge);
  EXPECT_EQ(in_child([&] {
              memory.reset();
              window = Buffer();
              return 0;
            }),
            0);
  EXPECT_TRUE(is_filled(static_cast<std::byte*>(window.view().data), kLarge, 1));
}

}  // namespace
}  // namespace farandole
