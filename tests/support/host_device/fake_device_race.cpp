// SPDX-License-Identifier: Apache-2.0
// Programs on streams, each with one mistake or without it. The thread sanitizer must report exactly the programs with
// a mistake: this is the purpose of the double's streams. usage: fake_device_race CASE right|wrong
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "fake_tables.h"

namespace farandole::fake {
namespace {

using Bytes = Vector<unsigned char>;

void fill(const Bytes& memory, CUstream stream) {
  cuda_api().cuMemsetD8Async(memory.address(), 1, memory.bytes(), stream);
}

void copy(const Bytes& target, const Bytes& source, CUstream stream) {
  cuda_api().cuMemcpyAsync(target.address(), source.address(), source.bytes(), stream);
}

void wait(CUstream stream, CUevent event) {
  cuda_api().cuStreamWaitEvent(stream, event, 0);
}

struct Pair {
  CUstream producer = make_stream();
  CUstream consumer = make_stream();
  CUevent event = make_event();
  Bytes data{4096};
  Bytes copied{4096};
  void record() const { cuda_api().cuEventRecord(event, producer); }
  void synchronize() const {
    cuda_api().cuStreamSynchronize(producer);
    cuda_api().cuStreamSynchronize(consumer);
  }
};

// A stream reads memory that another stream writes. The mistake: the reader does not wait.
void read_in_another_stream(bool is_right) {
  const Pair pair;
  fill(pair.data, pair.producer);
  pair.record();
  if (is_right) wait(pair.consumer, pair.event);
  copy(pair.copied, pair.data, pair.consumer);
  pair.synchronize();
}

// The mistake: the event is recorded before the work.
void record_an_event(bool is_right) {
  const Pair pair;
  if (!is_right) pair.record();
  fill(pair.data, pair.producer);
  if (is_right) pair.record();
  // The sanitizer must find the mistake even if the timing is right by chance.
  for (int item = 0; item < 20; ++item) cuda_api().cuMemsetD8Async(pair.copied.address(), 0, 1, pair.consumer);
  wait(pair.consumer, pair.event);
  copy(pair.copied, pair.data, pair.consumer);
  pair.synchronize();
}

// The mistake: a stream overwrites memory that another stream may still read.
void write_again(bool is_right) {
  const Pair pair;
  fill(pair.data, pair.producer);
  pair.record();
  wait(pair.consumer, pair.event);
  copy(pair.copied, pair.data, pair.consumer);
  cuda_api().cuEventRecord(pair.event, pair.consumer);
  if (is_right) wait(pair.producer, pair.event);
  fill(pair.data, pair.producer);
  pair.synchronize();
}

// The mistake: the host reads a result without waiting for it.
void read_on_the_host(bool is_right) {
  const Pair pair;
  const Bytes pinned(4096, Bytes::Kind::kPinned);
  fill(pinned, pair.producer);
  pair.record();
  if (is_right) {
    while (cuda_api().cuEventQuery(pair.event) != CUDA_SUCCESS) std::this_thread::yield();
  } else {
    (void)cuda_api().cuEventQuery(make_event());
  }
  std::printf("%d\n", static_cast<int>(pinned.data()[7] != 0));
  pair.synchronize();
}

// The mistake: a stream that does not wait for the default stream reads memory that the default stream writes.
void write_in_the_default_stream(bool is_right) {
  const Pair pair;
  const CUstream consumer = make_stream(is_right ? 0 : CU_STREAM_NON_BLOCKING);
  fill(pair.data, nullptr);
  copy(pair.copied, pair.data, consumer);
  cuda_api().cuStreamSynchronize(nullptr);
  cuda_api().cuStreamSynchronize(consumer);
}

// The mistake: a kernel reads memory that the communicator's stream receives.
void read_what_is_received(bool is_right) {
  const ncclUniqueId id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const CUfunction kernel = find_kernel_by_name("farandole_copy");  // before there is work, for which loading waits
    const ncclComm_t comm = join(id, 2, rank);
    const Pair pair;
    fill(pair.data, pair.producer);
    if (rank == 0) {
      nccl_api().ncclSend(pair.data.data(), 4096, ncclUint8, 1, comm, pair.producer);
    } else {
      nccl_api().ncclRecv(pair.data.data(), 4096, ncclUint8, 0, comm, pair.producer);
    }
    pair.record();
    if (is_right) wait(pair.consumer, pair.event);
    launch(kernel, arguments_of({{pair.copied.data(), pair.data.data(), nullptr, 4096, 1.0}}), pair.consumer);
    pair.synchronize();
    destroy(comm);
  });
}

// The mistake: groups of two communicators in two streams use the same memory. Sockets or locks that all groups share
// would hide the mistake from the sanitizer.
void exchange_in_two_streams(bool is_right) {
  const ncclUniqueId first_id = make_nccl_id();
  const ncclUniqueId second_id = make_nccl_id();
  on_ranks(2, [&](int rank) {
    const ncclComm_t first = join(first_id, 2, rank);
    const ncclComm_t second = join(second_id, 2, rank);
    const Pair pair;
    const auto message = [&](ncclComm_t comm, CUstream stream) {
      if (rank == 0) {
        nccl_api().ncclSend(pair.data.data(), 4096, ncclUint8, 1, comm, stream);
      } else {
        nccl_api().ncclRecv(pair.data.data(), 4096, ncclUint8, 0, comm, stream);
      }
    };
    message(first, pair.producer);
    pair.record();
    if (is_right) wait(pair.consumer, pair.event);
    message(second, pair.consumer);
    pair.synchronize();
    destroy(first);
    destroy(second);
  });
}

// The mistake: a stream reads memory that a graph writes in another stream. A count of owners that launches share would
// hide the mistake from the sanitizer.
void read_what_a_graph_writes(bool is_right) {
  const Pair pair;
  const Bytes source(4096);
  const CUfunction kernel = find_kernel_by_name("farandole_copy");
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  cuda_api().cuStreamBeginCapture(pair.producer, CU_STREAM_CAPTURE_MODE_GLOBAL);
  launch(kernel, arguments_of({{pair.data.data(), source.data(), nullptr, 4096, 1.0}}), pair.producer);
  cuda_api().cuStreamEndCapture(pair.producer, &graph);
  cuda_api().cuGraphInstantiateWithFlags(&executable, graph, 0);
  for (int launches = 0; launches < 20; ++launches) cuda_api().cuGraphLaunch(executable, pair.producer);
  pair.record();
  if (is_right) wait(pair.consumer, pair.event);
  copy(pair.copied, pair.data, pair.consumer);
  pair.synchronize();
}

}  // namespace
}  // namespace farandole::fake

int main(int argc, char** argv) {
  using namespace farandole::fake;
  const std::map<std::string, std::function<void(bool)>> cases{
      {"read_in_another_stream", read_in_another_stream},
      {"record_an_event", record_an_event},
      {"write_again", write_again},
      {"read_on_the_host", read_on_the_host},
      {"write_in_the_default_stream", write_in_the_default_stream},
      {"read_what_is_received", read_what_is_received},
      {"exchange_in_two_streams", exchange_in_two_streams},
      {"read_what_a_graph_writes", read_what_a_graph_writes}};
  const auto found = argc == 3 ? cases.find(argv[1]) : cases.end();
  if (found == cases.end()) return 2;
  cuda_api().cuInit(0);
  use_device(0);
  found->second(std::string(argv[2]) == "right");
  return 0;
}
