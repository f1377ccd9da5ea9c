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
    const DType type = reduces() ? run.parts.front().spec->dtype : DType::kU8;
    const std::size_t count = run.bytes / size_in_bytes(type);
    double prescale = spec_.prescale;
    ConstBufferView input;
    if (run.is_packed()) {
      run.packed = context_.buffers.take(run.bytes);
      run.values = BufferView(run.packed.view().data, count, type);
      pack(run);
      // Neutral values must not be scaled: `pack` has scaled the other parts, so the collective gets prescale 1.
      if (run.has_joined_part()) prescale = 1.0;
      input = run.values;
    } else {
      const LocalTensor& tensor = *run.parts.front().local;
      run.values = BufferView(tensor.output, count, type);
      input = ConstBufferView(tensor.input, count, type);
    }
    run.packed_at = context_.timeline.now();
    if (reduces()) {
      run.work = context_.communicator.allreduce_async(input, run.values, spec_.op, {prescale, spec_.postscale});
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
  bool reduces() const { return spec_.kind == RequestKind::kAllreduce; }

  /// Copies the parts into the fusion buffer. If this rank has joined for some parts, the other parts are scaled here.
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
      } else if (bytes > 0 && (reduces() || context_.communicator.rank() == spec_.root)) {
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
