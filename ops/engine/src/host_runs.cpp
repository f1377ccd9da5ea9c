// SPDX-License-Identifier: Apache-2.0
// Runs of tensors in host memory.
#include <cstring>
#include <utility>

#include "farandole/core/reduce.h"
#include "farandole/internal/average.h"
#include "runs.h"

namespace farandole {
namespace {

class HostMover final : public RunMover {
 public:
  HostMover(BatchContext& context, const RequestSpec& spec) : context_(context), spec_(spec) {}

  void begin(Run& run) override {
    if (run.is_packed()) run.packed = context_.buffers.take(run.bytes);
    const ConstBufferView input = choose_memory(run, run.bytes, spec_);
    if (run.is_packed()) pack(run);
    run.packed_at = context_.timeline.now();
    if (reduces(spec_)) {
      run.work = context_.communicator.allreduce_async(input, run.values, spec_.op,
                                                       {prescale_of(run, spec_), spec_.postscale});
      return;
    }
    if (context_.communicator.rank() == spec_.root && input.data != run.values.data && run.bytes > 0) {
      std::memcpy(run.values.data, input.data, run.bytes);
    }
    run.work = context_.communicator.broadcast_async(run.values, spec_.root);
  }

  bool finish(Run& run) override {
    if (!run.work.test()) return false;
    run.work.wait();
    run.moved = context_.timeline.now();
    unpack(run);
    return true;
  }

 private:
  /// Copies the parts into the fusion buffer. If this rank has joined for some parts, scales the other parts here,
  /// because the collective must not scale neutral values.
  void pack(Run& run) {
    auto* to = static_cast<std::byte*>(run.values.data);
    const bool scales = spec_.prescale != 1.0 && run.has_joined_part();
    for (const RunPart& part : run.parts) {
      const std::size_t bytes = part.spec->size_in_bytes();
      if (part.local == nullptr) {
        fill_neutral(to, part.spec->count(), part.spec->dtype, spec_.op);
      } else if (scales) {
        scale(to, part.local->input, part.spec->count(), part.spec->dtype,
              user_factor(spec_.prescale, part.spec->dtype));
      } else if (bytes > 0 && (reduces(spec_) || context_.communicator.rank() == spec_.root)) {
        std::memcpy(to, part.local->input, bytes);
      }
      to += bytes;
    }
  }

  void unpack(Run& run) {
    if (!run.is_packed()) return;
    const auto* from = static_cast<const std::byte*>(run.values.data);
    for (const RunPart& part : run.parts) {
      const std::size_t bytes = part.spec->size_in_bytes();
      if (part.local != nullptr && bytes > 0) std::memcpy(part.local->output, from, bytes);
      from += bytes;
    }
    context_.buffers.give_back(std::move(run.packed));
  }

  BatchContext& context_;
  const RequestSpec& spec_;
};

}  // namespace

std::unique_ptr<RunMover> make_host_mover(BatchContext& context, const RequestSpec& spec) {
  return std::make_unique<HostMover>(context, spec);
}

}  // namespace farandole
