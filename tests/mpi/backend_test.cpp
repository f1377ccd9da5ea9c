// The MPI backend itself, on as many processes as the launcher starts; one program per MPI.
//   --thread-level=none|single|funneled|serialized|multiple   who initialises MPI: the backend (none), or this program
//   --end=leave|abandon|fault|finalize                         how the job ends
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "farandole/core/backend.h"
#include "farandole/core/deadline.h"
#include "farandole/core/error.h"
#include "farandole/core/reduce.h"
#include "mpi_process_group.h"
#include "mpi_runtime.h"

namespace farandole::mpi {
namespace {

constexpr int kReplicas = 2;
constexpr PartLimits kSmallParts{/*message_bytes=*/1000, /*collective_count=*/7};

int thread_level = -1;  // -1: the backend initialises MPI
std::unique_ptr<MpiProcessGroup> group;

Topology make_topology(int processes) {
  std::vector<ProcessInfo> infos(static_cast<std::size_t>(processes));
  for (ProcessInfo& info : infos) info = {0, kReplicas, 0, "host"};
  return Topology(std::move(infos));
}

std::unique_ptr<MpiProcessGroup> join(const std::optional<int>& communicator = std::nullopt) {
  auto joined = std::make_unique<MpiProcessGroup>(start_runtime(communicator, /*many_threads=*/true), kSmallParts);
  joined->set_topology(make_topology(joined->process_count()));
  return joined;
}

/// The watchdog of every wait: nothing here takes longer than a moment.
template <class Condition>
void wait_until(const std::string& what, const Condition& condition) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (!condition()) {
    if (deadline.passed())
      throw std::runtime_error("process " + std::to_string(group->process()) + ": stuck in " + what);
    std::this_thread::yield();
  }
}

void finish(Transfer& transfer, const std::string& what) {
  wait_until(what, [&] { return transfer.test(); });
}

void barrier(ProcessGroup& among = *group) {
  char mine = 0;
  std::vector<char> all(static_cast<std::size_t>(among.process_count()));
  among.allgather(&mine, all.data(), 1);
}

std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(seed * 37 + i * 11 + i / 251);
  return data;
}

/// First ranks of this process, of the next one and of the previous one; all the same if there is one process.
struct Ring {
  explicit Ring(const ProcessGroup& among) {
    const int count = among.process_count();
    me = among.process() * kReplicas;
    next = (among.process() + 1) % count * kReplicas;
    previous = (among.process() + count - 1) % count * kReplicas;
  }
  int me, next, previous;
};

void exchange(ProcessGroup& among, std::uint8_t lane, std::size_t bytes, unsigned seed) {
  const Ring ring(among);
  const auto outgoing = pattern(bytes, seed + static_cast<unsigned>(ring.me));
  std::vector<unsigned char> incoming(bytes);
  const auto receive = among.transport().recv({9, lane, ring.previous, ring.me}, incoming.data(), bytes);
  const auto send = among.transport().send({9, lane, ring.me, ring.next}, outgoing.data(), bytes);
  finish(*receive, "receive");
  finish(*send, "send");
  EXPECT_EQ(incoming, pattern(bytes, seed + static_cast<unsigned>(ring.previous))) << bytes << " bytes";
}

TEST(MpiTagLayout, GivesEveryChannelItsOwnTag) {
  const TagLayout layout(3, 1 << 20);
  std::set<int> tags;
  std::size_t channels = 0;
  for (const int communicator : {0, 1, 2047, kMaxCommunicators - 1}) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int source = 0; source < 3; ++source) {
        for (int target = 0; target < 3; ++target, ++channels) {
          tags.insert(layout.pack({static_cast<std::uint16_t>(communicator), static_cast<std::uint8_t>(lane), 0, 0},
                                  source, target));
        }
      }
    }
  }
  EXPECT_EQ(tags.size(), channels);
  EXPECT_GE(*tags.begin(), 0);
  EXPECT_LT(*tags.rbegin(), 1 << 18);
}

TEST(MpiTagLayout, RefusesAnMpiWithTooFewTags) {
  EXPECT_NO_THROW(TagLayout(1, 32767));
  EXPECT_THROW(TagLayout(2, 32767), Unsupported);
  EXPECT_NO_THROW(TagLayout(kMaxReplicas, (1 << 26) - 1));
  EXPECT_THROW(TagLayout(kMaxReplicas, (1 << 26) - 2), Unsupported);
}

TEST(MpiTransport, DeliversMessagesOfOneChannelInOrder) {
  const Ring ring(*group);
  constexpr int kMessages = 200;
  std::vector<int> outgoing(kMessages);
  std::vector<int> incoming(kMessages, -1);
  std::iota(outgoing.begin(), outgoing.end(), ring.me * 1000);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < kMessages; ++i) {
    transfers.push_back(group->transport().send({1, 0, ring.me, ring.next}, &outgoing[i], sizeof(int)));
    transfers.push_back(group->transport().recv({1, 0, ring.previous, ring.me}, &incoming[i], sizeof(int)));
  }
  for (const auto& transfer : transfers) finish(*transfer, "message in order");
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(incoming[static_cast<std::size_t>(i)], ring.previous * 1000 + i);
}

TEST(MpiTransport, KeepsChannelsApart) {
  const Ring ring(*group);
  std::vector<Channel> channels;  // of what this process sends
  for (const int communicator : {0, 1, kMaxCommunicators - 1}) {
    for (const int lane : {0, kLanes - 1}) {
      for (int pair = 0; pair < kReplicas * kReplicas; ++pair) {
        channels.push_back({static_cast<std::uint16_t>(communicator), static_cast<std::uint8_t>(lane),
                            ring.me + pair / kReplicas, ring.next + pair % kReplicas});
      }
    }
  }
  std::vector<int> outgoing(channels.size());
  std::vector<int> incoming(channels.size(), -1);
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    outgoing[i] = ring.me * 1000 + static_cast<int>(i);
    transfers.push_back(group->transport().send(channels[i], &outgoing[i], sizeof(int)));
  }
  // In the opposite order, so that only the tag can bring a message to its receive.
  for (std::size_t i = channels.size(); i-- > 0;) {
    const Channel from{channels[i].communicator, channels[i].lane, channels[i].source - ring.me + ring.previous,
                       channels[i].target - ring.next + ring.me};
    transfers.push_back(group->transport().recv(from, &incoming[i], sizeof(int)));
  }
  for (const auto& transfer : transfers) finish(*transfer, "message of its channel");
  for (std::size_t i = 0; i < channels.size(); ++i) EXPECT_EQ(incoming[i], ring.previous * 1000 + static_cast<int>(i));
}

TEST(MpiTransport, RefusesChannelsThatDoNotExist) {
  int value = 0;
  EXPECT_THROW(group->transport().send({0, kLanes, 0, 0}, &value, 4), InternalError);
  EXPECT_THROW(group->transport().recv({kMaxCommunicators, 0, 0, 0}, &value, 4), InternalError);
  EXPECT_THROW(group->transport().send({0, 0, 0, group->process_count() * kReplicas}, &value, 4), InternalError);
}

TEST(MpiTransport, CutsLongMessagesIntoParts) {
  for (const std::size_t bytes : {1U, 999U, 1000U, 1001U, 2000U, 12345U, 300000U}) exchange(*group, 1, bytes, 5);
}

TEST(MpiTransport, SendsEmptyMessages) {
  const Ring ring(*group);
  const auto receive = group->transport().recv({2, 0, ring.previous, ring.me}, nullptr, 0);
  EXPECT_FALSE(receive->test()) << "nothing was sent yet";
  barrier();
  const auto send = group->transport().send({2, 0, ring.me, ring.next}, nullptr, 0);
  finish(*receive, "empty receive");
  finish(*send, "empty send");
  EXPECT_TRUE(receive->test()) << "stays complete";
}

TEST(MpiTransport, ReportsMessagesOfAnotherSize) {
  const Ring ring(*group);
  const std::vector<char> outgoing(3000);
  std::vector<char> incoming(3000);
  struct Case {
    std::size_t sent, expected;
    const char* came;
  };
  for (const Case& each :
       {Case{60, 100, ": 60 bytes came"}, Case{120, 100, ": more came"}, Case{1500, 1700, ": 1500 bytes came"}}) {
    // A message that is too long is reported by MPI: to the program's own handler if it has initialised MPI, and not at
    // all by Open MPI within one process.
    if (each.sent == 120 && (thread_level >= 0 || group->process_count() == 1)) continue;
    const auto receive = group->transport().recv({3, 2, ring.previous, ring.me}, incoming.data(), each.expected);
    const auto send = group->transport().send({3, 2, ring.me, ring.next}, outgoing.data(), each.sent);
    try {
      finish(*receive, "receive of another size");
      ADD_FAILURE() << "received " << each.sent << " bytes where " << each.expected << " were expected";
    } catch (const TransportError& error) {
      EXPECT_NE(std::string(error.what()).find(each.came), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("communicator 3, lane 2"), std::string::npos) << error.what();
    }
    finish(*send, "send of another size");
    barrier();
  }
}

TEST(MpiTransport, WithdrawsReceives) {
  const Ring ring(*group);
  std::vector<unsigned char> untouched(5000, 0xAB);
  group->transport().recv({4, 0, ring.previous, ring.me}, untouched.data(), untouched.size()).reset();
  barrier();
  const auto outgoing = pattern(5000, 1);
  std::vector<unsigned char> incoming(5000);
  const auto send = group->transport().send({4, 0, ring.me, ring.next}, outgoing.data(), outgoing.size());
  const auto receive = group->transport().recv({4, 0, ring.previous, ring.me}, incoming.data(), incoming.size());
  finish(*receive, "receive after a withdrawn one");
  finish(*send, "send after a withdrawn receive");
  EXPECT_EQ(incoming, outgoing);
  EXPECT_EQ(untouched, std::vector<unsigned char>(5000, 0xAB));
}

TEST(MpiTransport, WorksFromManyThreads) {
  if (group->thread_use() != ThreadUse::kAnyThread) GTEST_SKIP() << group->thread_advice();
  std::vector<std::thread> threads;
  for (int lane = 0; lane < kLanes; ++lane) {
    threads.emplace_back([lane] {
      for (unsigned turn = 0; turn < 50; ++turn)
        exchange(*group, static_cast<std::uint8_t>(lane), 10 + turn * 61, turn);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MpiNotices, ArriveInTheOrderOfTheirSender) {
  constexpr std::uint64_t kNotices = 20;
  for (std::uint64_t i = 0; i < kNotices; ++i) {
    for (int process = 0; process < group->process_count(); ++process) {
      Notice notice;
      notice.kind = Notice::Kind::kQuery;
      notice.process = group->process();
      notice.sequence = i;
      std::snprintf(notice.text, sizeof(notice.text), "from %d", group->process());
      group->post(process, notice);
    }
  }
  std::vector<std::uint64_t> seen(static_cast<std::size_t>(group->process_count()));
  wait_until("notices", [&] {
    while (const auto notice = group->poll()) {
      EXPECT_EQ(notice->sequence, seen[static_cast<std::size_t>(notice->process)]++);
      EXPECT_EQ(notice->text, "from " + std::to_string(notice->process));
    }
    return std::all_of(seen.begin(), seen.end(), [](std::uint64_t count) { return count == kNotices; });
  });
  EXPECT_FALSE(group->poll().has_value());
  barrier();
}

TEST(MpiProcessGroup, GathersBytesInOrderOfProcesses) {
  const std::array<int, 3> mine{group->process(), group->process() * 2, 7};
  std::vector<std::array<int, 3>> all(static_cast<std::size_t>(group->process_count()));
  group->allgather(mine.data(), all.data(), sizeof(mine));
  for (int process = 0; process < group->process_count(); ++process) {
    EXPECT_EQ(all[static_cast<std::size_t>(process)], (std::array<int, 3>{process, process * 2, 7}));
  }
}

TEST(MpiProcessGroup, TellsFromWhichThreadsItMayBeUsed) {
  if (thread_level == MPI_THREAD_SINGLE || thread_level == MPI_THREAD_FUNNELED) {
    EXPECT_EQ(group->thread_use(), ThreadUse::kMainThreadOnly);
    EXPECT_NE(group->thread_advice().find("call MPI_Init_thread with MPI_THREAD_MULTIPLE"), std::string::npos);
  } else {
    EXPECT_EQ(group->thread_use(), ThreadUse::kAnyThread);
    EXPECT_EQ(group->thread_advice(), "");
  }
}

/// Elements whose sums and products are exact in every type.
Buffer contribution(int process, std::size_t count, DType dtype) {
  Buffer ones(count, dtype);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<int>((i + static_cast<std::size_t>(process)) % 3) + 1;
    void* at = ones.view().part(i, 1).data;
    const auto store = [at](auto element) { std::memcpy(at, &element, sizeof(element)); };
    switch (dtype) {
      case DType::kBool:
        store(value != 1);
        break;
      case DType::kU8:
      case DType::kI8:
        store(static_cast<std::int8_t>(value));
        break;
      case DType::kU16:
      case DType::kI16:
        store(static_cast<std::int16_t>(value));
        break;
      case DType::kI32:
        store(value);
        break;
      case DType::kI64:
        store(static_cast<std::int64_t>(value));
        break;
      case DType::kF16:
        store(to_half(static_cast<float>(value)));
        break;
      case DType::kBF16:
        store(to_bfloat16(static_cast<float>(value)));
        break;
      case DType::kF32:
        store(static_cast<float>(value));
        break;
      case DType::kF64:
        store(static_cast<double>(value));
        break;
    }
  }
  return ones;
}

void check_allreduce(VendorCollectives& vendor, std::span<const int> processes, std::size_t count, DType dtype,
                     ReduceOp op, bool in_place) {
  Buffer expected = contribution(processes.front(), count, dtype);
  for (const int process : processes.subspan(1)) {
    Buffer other = contribution(process, count, dtype);
    reduce(expected.view().data, expected.view().data, other.view().data, count, dtype, op);
  }
  Buffer input = contribution(group->process(), count, dtype);
  Buffer separate(count, dtype);
  void* output = in_place ? input.view().data : separate.view().data;
  ASSERT_TRUE(vendor.supports(dtype, op));
  finish(*vendor.allreduce(input.view().data, output, count, dtype, op), "allreduce");
  EXPECT_EQ(count == 0 ? 0 : std::memcmp(output, expected.view().data, expected.view().size_in_bytes()), 0)
      << name(dtype) << " " << name(op) << ", " << count << " elements, in place " << in_place;
}

TEST(MpiVendor, ReducesEveryTypeWithEveryOperation) {
  std::vector<int> processes(static_cast<std::size_t>(group->process_count()));
  std::iota(processes.begin(), processes.end(), 0);
  const auto vendor = group->vendor_collectives(processes, 1);
  if (thread_level == MPI_THREAD_SERIALIZED) {
    EXPECT_EQ(vendor, nullptr) << "making it would block with the lock held";
    return;
  }
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllReduceOps) {
      if (op == ReduceOp::kAverage && !is_floating_point(dtype)) continue;
      for (const std::size_t count : {0U, 1U, 7U, 20U}) {
        check_allreduce(*vendor, processes, count, dtype, op, false);
        check_allreduce(*vendor, processes, count, dtype, op, true);
      }
    }
  }
}

TEST(MpiVendor, WorksAmongSomeProcesses) {
  if (thread_level == MPI_THREAD_SERIALIZED) GTEST_SKIP();
  std::vector<int> processes;
  for (int process = group->process() % 2; process < group->process_count(); process += 2) processes.push_back(process);
  const auto vendor = group->vendor_collectives(processes, 1);
  check_allreduce(*vendor, processes, 20, DType::kF32, ReduceOp::kSum, false);
}

TEST(MpiJoin, UsesTheCommunicatorThatIsPassed) {
  MPI_Comm half = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_split(MPI_COMM_WORLD, group->process() % 2, -group->process(), &half), MPI_SUCCESS);
  const auto joined = join(static_cast<int>(MPI_Comm_c2f(half)));
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &size);
  EXPECT_EQ(joined->process(), rank);
  EXPECT_EQ(joined->process_count(), size);
  exchange(*joined, 0, 2500, 3);
  joined->leave();
  EXPECT_THROW(barrier(*joined), TransportError) << "the job was left";
  MPI_Comm_free(&half);
  exchange(*group, 0, 10, 4);
}

TEST(MpiJoin, RefusesCommunicatorsThatCannotBeJoined) {
  EXPECT_THROW(join(static_cast<int>(MPI_Comm_c2f(MPI_COMM_NULL))), InvalidArgument);
}

TEST(MpiJoin, WorksAgainAfterLeaving) {
  for (int turn = 0; turn < 3; ++turn) {
    const auto joined = join();
    exchange(*joined, 0, 100, static_cast<unsigned>(turn));
    joined->leave();
  }
}

TEST(MpiJoin, FindsAndLoadsThePluginOfTheMpiThatRuns) {
  const Settings settings;
  const BackendChoice choice = choose_backend(settings, {});
  EXPECT_EQ(choice.plugin, FARANDOLE_MPI_PLUGIN);
  EXPECT_EQ(choice.launched_size, group->process_count());
  Backend& backend = load_backend(choice.plugin, settings);
  EXPECT_EQ(backend.name(), FARANDOLE_MPI_PLUGIN);
  EXPECT_EQ(&backend, &load_backend(choice.plugin, settings));
  EXPECT_EQ(
      backend.version().rfind(std::string_view(FARANDOLE_MPI_PLUGIN) == "mpi_openmpi" ? "Open MPI " : "MPICH ", 0), 0U)
      << backend.version();
  const auto joined = backend.join(settings, {});
  joined->set_topology(make_topology(joined->process_count()));
  exchange(*joined, 0, 100, 8);
  joined->leave();

  Settings other;
  other.mpi = std::string_view(FARANDOLE_MPI_PLUGIN) == "mpi_openmpi" ? "mpich" : "openmpi";
  EXPECT_THROW(choose_backend(other, {}), InvalidArgument);
}

/// Process 0 fails; the others, which are leaving, hear of it instead of waiting forever.
void end_with_fault() {
  if (group->process() == 0) {
    Notice notice;
    notice.error_kind = static_cast<std::uint32_t>(ErrorKind::kPeerLost);
    std::snprintf(notice.text, sizeof(notice.text), "rank 0 gave up");
    for (int process = 1; process < group->process_count(); ++process) group->post(process, notice);
  } else {
    EXPECT_THROW(group->leave(), PeerLost);
  }
  group.reset();
}

void end_with_finalize() {
  MPI_Finalize();
  int value = 0;
  EXPECT_THROW(group->transport().send({0, 0, 0, 0}, &value, 4), TransportError);
  EXPECT_THROW(group->poll(), TransportError);
  EXPECT_THROW(group->leave(), TransportError);
  group.reset();
}

void end_job(const std::string& way) {
  if (way == "leave") {
    group->leave();
    group.reset();
    int finalized = 0;
    MPI_Finalized(&finalized);
    EXPECT_EQ(finalized != 0, thread_level < 0) << "the backend finalises MPI if it has initialised it";
    if (thread_level < 0) {
      EXPECT_THROW(join(), Unsupported);
    }
  } else if (way == "abandon") {
    group.reset();
  } else if (way == "fault") {
    end_with_fault();
  } else {
    end_with_finalize();
  }
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string level = "none";
  std::string way = "leave";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--thread-level=", 0) == 0) level = argument.substr(std::strlen("--thread-level="));
    if (argument.rfind("--end=", 0) == 0) way = argument.substr(std::strlen("--end="));
  }
  if (level != "none") {
    const std::vector<std::pair<std::string, int>> levels{{"single", MPI_THREAD_SINGLE},
                                                          {"funneled", MPI_THREAD_FUNNELED},
                                                          {"serialized", MPI_THREAD_SERIALIZED},
                                                          {"multiple", MPI_THREAD_MULTIPLE}};
    const auto wanted =
        std::find_if(levels.begin(), levels.end(), [&](const auto& each) { return each.first == level; });
    MPI_Init_thread(&argc, &argv, wanted->second, &thread_level);
    if (thread_level != wanted->second)
      std::printf("this MPI gives %s\n", std::string(thread_level_name(thread_level)).c_str());
  }
  group = join();
  const int failed = RUN_ALL_TESTS();
  end_job(way);
  return failed != 0 || testing::UnitTest::GetInstance()->Failed() ? 1 : 0;
}

}  // namespace
}  // namespace farandole::mpi

int main(int argc, char** argv) {
  return farandole::mpi::run(argc, argv);
}
