// SPDX-License-Identifier: Apache-2.0
// Farandole's calls as C functions for torch_streams.py, which passes torch's tensors and streams. Only for tests. Each
// function returns 0 for success, otherwise 1; probe_error() then returns the reason.
#include <exception>
#include <memory>
#include <string>

#include "farandole/collectives/communicator.h"
#include "farandole/core/world.h"

namespace {

using namespace farandole;

struct JoinedJob {
  World world;
  Communicator ranks = Communicator::of_world(world);
  Communicator caller = ranks.duplicate({.device_order = CommunicatorOptions::DeviceOrder::kCaller, .name = "torch"});
};
std::unique_ptr<JoinedJob> job;
std::string error;

template <class Body>
int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& caught) {
    error = caught.what();
    return 1;
  }
}

}  // namespace

extern "C" {

const char* probe_error() {
  return error.c_str();
}

int probe_join() {
  return guarded([] { job = std::make_unique<JoinedJob>(); });
}

int probe_leave() {
  return guarded([] { job.reset(); });
}

int probe_rank() {
  return job->ranks.rank();
}

int probe_size() {
  return job->ranks.size();
}

/// Sums `count` f32 elements of device memory in place. With a null `stream` it blocks until the sums are there.
/// @param in_callers_order  nonzero: the calling thread enqueues   @param algorithm  empty: Farandole's choice
int probe_allreduce(void* values, std::size_t count, void* stream, double prescale, int in_callers_order,
                    const char* algorithm) {
  return guarded([&] {
    CallOptions options;
    options.prescale = prescale;
    options.algorithm = algorithm;
    if (stream != nullptr) options.stream = StreamView(stream, job->ranks.device());
    Communicator& ranks = in_callers_order != 0 ? job->caller : job->ranks;
    ranks.allreduce(BufferView(values, count, DType::kF32, job->ranks.device()), ReduceOp::kSum, options);
  });
}

}  // extern "C"
