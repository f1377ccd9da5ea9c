// SPDX-License-Identifier: Apache-2.0
// The rendezvous of a job that was started without MPI. Threads of this process stand for the job's processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/core/error.h"
#include "local/local_process_group.h"
#include "local/rendezvous.h"
#include "message_of.h"
#include "side_by_side.h"
#include "sockets/frame.h"

namespace farandole::local {
namespace {

using test::message_of;
using test::side_by_side;
using testing::AllOf;
using testing::HasSubstr;

std::string job(const std::string& name) {
  return name + "-" + std::to_string(getpid());
}

TEST(LocalRendezvous, AllProcessesConnectAndExchangeInfo) {
  const auto sums = side_by_side<int>(4, [](int process) {
    LocalProcessGroup group({job("sums"), process, 4});
    EXPECT_EQ(group.process(), process);
    int sum = 0;
    for (int turn = 0; turn < 20; ++turn) {
      const int mine = process + turn;
      std::vector<int> all(4);
      group.allgather(&mine, all.data(), sizeof mine);
      for (const int each : all) sum += each;
    }
    group.leave();
    return sum;
  });
  EXPECT_EQ(sums, std::vector<int>(4, 20 * 6 + 4 * 190));
}

TEST(LocalRendezvous, TheSameJobCanRepeatTheRendezvous) {
  side_by_side<int>(3, [](int process) {
    for (int turn = 0; turn < 20; ++turn) {
      LocalProcessGroup group({job("again"), process, 3});
      // Nobody ends before all have met, as at the end of a job.
      std::vector<int> all(3);
      group.allgather(&process, all.data(), sizeof process);
      group.leave();
    }
    return 0;
  });
}

TEST(LocalRendezvous, ControlMessagesArriveInOrderEvenToOneself) {
  side_by_side<int>(2, [](int process) {
    LocalProcessGroup group({job("control messages"), process, 2});
    for (int i = 0; i < 50; ++i) {
      ControlMessage control;
      control.kind = ControlMessage::Kind::kQuery;
      control.process = process;
      control.sequence = static_cast<std::uint64_t>(i);
      for (int target = 0; target < 2; ++target) group.post(target, control);
    }
    std::vector<std::uint64_t> next(2);
    while (next[0] < 50 || next[1] < 50) {
      if (const auto control = group.poll()) {
        EXPECT_EQ(control->sequence, next[static_cast<std::size_t>(control->process)]++);
      }
    }
    group.leave();
    return 0;
  });
}

/// Its last control message and the end of its connection may come at the same moment.
TEST(LocalRendezvous, AProcessIsGoneOnceItsControlMessagesAreRead) {
  for (const bool says_something : {true, false}) {
    std::latch has_gone(1);
    side_by_side<int>(2, [&](int process) {
      auto group = std::make_unique<LocalProcessGroup>(LocalJob{job("gone"), process, 2});
      if (process == 1) {
        ControlMessage control;
        control.process = 1;
        if (says_something) group->post(0, control);
        group.reset();
        has_gone.count_down();
        return 0;
      }
      EXPECT_FALSE(group->is_gone(0)) << "itself";
      has_gone.wait();
      EXPECT_EQ(group->is_gone(1), !says_something);
      EXPECT_EQ(group->poll().has_value(), says_something);
      EXPECT_TRUE(group->is_gone(1));
      return 0;
    });
  }
}

/// A connection with a process of a job, from a program that is none of Farandole's.
class Stranger {
 public:
  Stranger(const std::string& job_name, int process) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "farandole/" + std::to_string(geteuid()) + "/" + job_name + "/" + std::to_string(process);
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    // The process may not listen yet.
    while (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) std::this_thread::yield();
  }
  /// Receives the process's hello, and returns the hello with the number replaced: otherwise valid in the same job.
  std::string hello(std::int32_t process) {
    std::string packet(128, '\0');
    EXPECT_EQ(recv(socket_.get(), packet.data(), packet.size(), MSG_WAITALL), 128);
    return packet.replace(0, sizeof process, reinterpret_cast<const char*>(&process), sizeof process);
  }
  void say(const std::string& packet) {
    EXPECT_EQ(send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
  }
  /// A whole message.
  void say(sockets::Key key, const std::string& payload) {
    const sockets::FrameHeader header{key, payload.size(), 0, payload.size()};
    say(std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload);
  }
  void say_no_more() { EXPECT_EQ(shutdown(socket_.get(), SHUT_WR), 0); }
  /// True once the process has closed the connection.
  bool is_refused() {
    char byte = 0;
    return recv(socket_.get(), &byte, 1, 0) <= 0;
  }

 private:
  UniqueDescriptor socket_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

TEST(LocalRendezvous, ProcessWithoutHelloIsRefusedAndTheRestConnect) {
  std::latch are_refused(1);
  side_by_side<int>(3, [&](int part) {
    if (part < 2) {
      if (part == 1) are_refused.wait();
      const Rendezvous rendezvous = join_job({job("strangers"), part, 2});
      EXPECT_TRUE(rendezvous.sockets[static_cast<std::size_t>(1 - part)]);
      return 0;
    }
    const auto refuse = [](const std::function<std::string(Stranger&)>& hello) {
      Stranger stranger(job("strangers"), 0);
      stranger.say(hello(stranger));
      stranger.say_no_more();
      EXPECT_TRUE(stranger.is_refused());
    };
    refuse([](Stranger& stranger) { return stranger.hello(1).substr(1); });
    for (const int process : {-1, 0, 2, 1 << 30}) {
      refuse([process](Stranger& stranger) { return stranger.hello(process); });
    }
    refuse([](Stranger& stranger) { return stranger.hello(1).substr(0, 12) + std::string(116, 'x'); });
    are_refused.count_down();
    return 0;
  });
}

TEST(LocalRendezvous, InvalidControlMessageNamesItsSender) {
  ControlMessage leave;
  leave.kind = ControlMessage::Kind::kLeave;
  leave.process = 1;
  const auto changed = [leave](const std::function<void(ControlMessage&)>& change) {
    ControlMessage control = leave;
    change(control);
    return std::string(reinterpret_cast<const char*>(&control), sizeof control);
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {std::string(100, '\0'), "a control message of 100 bytes"},
      {std::string(5000, '\0'), "a control message of 5000 bytes"},
      {changed([](ControlMessage& control) { control.kind = static_cast<ControlMessage::Kind>(9); }), "of kind 9"},
      {changed([](ControlMessage& control) { control.process = 1 << 20; }), "in the name of process 1048576"},
      {changed([](ControlMessage& control) { control.process = 0; }), "in the name of process 0"},
      {changed([](ControlMessage& control) { control.rank = -1; }), "about rank -1"},
      {changed([](ControlMessage& control) { control.communicator = 4097; }), "about communicator 4097"},
      {changed([](ControlMessage& control) { control.error_kind = 10; }), "an error of kind 10"},
      {changed([](ControlMessage& control) { std::fill_n(control.text, sizeof control.text, 'x'); }),
       "whose text has no end"},
  };
  for (const auto& [bytes, reason] : cases) {
    const auto errors = side_by_side<std::string>(2, [&, &sent = bytes](int part) -> std::string {
      if (part == 1) {
        Stranger peer(job("control message"), 0);
        peer.say(peer.hello(1));
        peer.say(sockets::Key{1} << 60, sent);
        return "";
      }
      LocalProcessGroup group({job("control message"), 0, 2});
      return message_of<TransportError>([&] {
        while (!group.poll() && !group.is_gone(1)) std::this_thread::yield();
      });
    });
    EXPECT_THAT(errors[0], AllOf(HasSubstr("process 1 has sent what no process"), HasSubstr(reason)));
  }
}

TEST(LocalRendezvous, WaitingEndsWithAFaultSeenMeanwhile) {
  std::latch has_ended(1);
  side_by_side<int>(2, [&](int process) {
    LocalProcessGroup group({job("seen"), process, 2});
    if (process == 1) {
      has_ended.wait();
      return 0;
    }
    group.while_waiting([] { throw Timeout("long enough"); });
    std::vector<int> all(2);
    EXPECT_EQ(message_of<Timeout>([&] { group.allgather(&process, all.data(), sizeof process); }), "long enough");
    has_ended.count_down();
    return 0;
  });
}

TEST(LocalRendezvous, LeavingProcessIsNamed) {
  const auto errors = side_by_side<std::string>(3, [](int process) -> std::string {
    LocalProcessGroup group({job("gone"), process, 3});
    if (process == 1) return "";
    const int mine = process;
    std::vector<int> all(3);
    return message_of<PeerLost>([&] { group.allgather(&mine, all.data(), sizeof mine); });
  });
  EXPECT_THAT(errors[0], HasSubstr("process 1 of 3 has gone"));
  EXPECT_THAT(errors[2], HasSubstr("process 1 of 3 has gone"));
}

TEST(LocalRendezvous, MissingProcessIsNamedAtTheDeadline) {
  const auto slot = [](int process) {
    return LocalJob{job("missing"), process, 4, std::chrono::hours(1), std::chrono::milliseconds(50)};
  };
  const auto errors = side_by_side<std::string>(
      2, [&](int process) { return message_of<Timeout>([&] { join_job(slot(2 * process)); }); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("process 0 of 4"), HasSubstr("processes 1,"), HasSubstr("FARANDOLE_RANK")));
}

TEST(LocalRendezvous, StoppedProcessIsNamedAfterTheRendezvous) {
  const auto errors = side_by_side<std::string>(2, [done = std::make_shared<std::latch>(2)](int process) {
    LocalJob slot{job("stopped"), process, 2};
    slot.timeout = std::chrono::milliseconds(50);
    LocalProcessGroup group(slot);
    std::vector<int> all(2);
    // Process 1 does not come to the gathering, and is there all the time.
    std::string error =
        process == 1 ? "" : message_of<Timeout>([&] { group.allgather(&process, all.data(), sizeof process); });
    done->arrive_and_wait();
    return error;
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("process 0 of 2"), HasSubstr("for process 1, which has met the other processes")));
}

TEST(LocalRendezvous, ANumberIsTakenOnce) {
  const LocalJob slot{job("twice"), 0, 1};
  const Rendezvous first = join_job(slot);
  EXPECT_THAT(message_of<InvalidArgument>([&] { join_job(slot); }),
              AllOf(HasSubstr("has a process 0 already"), HasSubstr("FARANDOLE_RANK"), HasSubstr("FARANDOLE_JOB")));
}

/// Process 1 has greeted process 0 and goes, before process 2 comes.
TEST(LocalRendezvous, ProcessThatLeavesDuringRendezvousIsNamed) {
  const std::string name = job("early");
  auto error = std::async(std::launch::async, [&] { return message_of<PeerLost>([&] { join_job({name, 0, 3}); }); });
  {
    LocalJob slot{name, 1, 3};
    slot.timeout = std::chrono::milliseconds(200);
    EXPECT_THAT(message_of<Timeout>([&] { join_job(slot); }), HasSubstr("waits for process 2"));
  }
  EXPECT_THAT(error.get(), HasSubstr("process 1 has gone"));
}

TEST(LocalRendezvous, DifferentJobSizesAreRefused) {
  const auto errors = side_by_side<std::string>(2, [](int process) {
    return message_of<InvalidArgument>([&] { join_job({job("sizes"), process, 2 + process}); });
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("FARANDOLE_SIZE is 2 in process 0"), HasSubstr("3 in process 1")));
  EXPECT_THAT(errors[1], AllOf(HasSubstr("FARANDOLE_SIZE is 3 in process 1"), HasSubstr("2 in process 0")));
}

TEST(LocalRendezvous, TheNameOfAJobIsShort) {
  EXPECT_THAT(message_of<InvalidArgument>([] { join_job({std::string(65, 'x'), 0, 1}); }), HasSubstr("1 to 64"));
}

}  // namespace
}  // namespace farandole::local
