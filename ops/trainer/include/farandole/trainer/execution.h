// SPDX-License-Identifier: Apache-2.0
// Where and how a replica computes: memory, stream, scratch memory and types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "farandole/core/export.h"
#include "farandole/core/stream.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// Scratch memory that the layers of a replica use one after another, so that the replica needs as much as the layer
/// that needs most. Take memory in a scope that lasts as long as the memory is used, at most one call of `forward`,
/// `backward` or `update`:
///
///     Workspace::Scope scope(pass.execution.workspace());
///     const std::span<float> sums = scope.take<float>(channels).host();   // undefined contents
///
/// Scopes may be nested, as layers inside layers need; memory is taken from the innermost one. A workspace grows to the
/// largest need, and never shrinks. Not thread-safe: the replica's thread takes memory, and may lend it to other
/// threads.
class Workspace {
  struct Position {
    std::size_t block = 0, offset = 0;
  };

 public:
  explicit Workspace(TensorMemory memory = {}) : memory_(std::move(memory)) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Bytes that the workspace holds.
  std::size_t bytes() const;
  /// Joins the memory into one block, which fits every need so far: scopes with the same needs then allocate and
  /// release nothing. No-op while memory is taken.
  void settle();

  class Scope {
   public:
    /// @param workspace  outlives the scope
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), outer_(workspace.innermost_), begin_(workspace.used_) {
      workspace_.innermost_ = this;
    }
    ~Scope() {
      workspace_.used_ = begin_;
      workspace_.innermost_ = outer_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    /// Returns memory for `count` elements, aligned to 64 bytes, in the space of the workspace. Valid until the scope
    /// ends. @throws std::bad_alloc, DeviceError  there is not enough memory
    /// @throws InvalidArgument  a scope inside this one has not ended
    template <class T>
    VectorView<T> take(std::size_t count) {
      return {static_cast<T*>(workspace_.take(*this, count, sizeof(T))), count, workspace_.memory_.space};
    }

   private:
    Workspace& workspace_;
    const Scope* const outer_;
    const Position begin_;
  };

 private:
  void* take(const Scope& scope, std::size_t count, std::size_t element_bytes);

  TensorMemory memory_;
  std::vector<Buffer> blocks_;  // memory that was taken must not move, so growth adds a block
  Position used_;
  const Scope* innermost_ = nullptr;
};

class DeviceKernels;
class MemoryLog;

/// What a layer, loss, metric or update rule can do in the memory of a device. Each includes those before.
enum class DeviceForm : std::uint8_t {
  kNone,     ///< computes in host memory only
  kStreams,  ///< enqueues its work in the stream of the execution, and touches no values on the host
  /// The work can be captured into a graph (TrainerOptions::graph): it is the same in each training step, and reads on
  /// the device what changes from step to step (StepNumbers).
  kGraphs,
};

/// The types in which a replica computes.
struct Precision {
  /// Of matrix products and convolutions. The model's type, or with a model of floats on a device kBF16 or kF16:
  /// factors are rounded to that type, and products are added up in f32. Everything else is computed in the model's
  /// type.
  DType compute = DType::kF32;
  /// Of the values that the optimizer updates. A finer type than `compute` keeps updates that are too small to change
  /// the model's own parameters; see OptimizerOptions::master.
  DType master = DType::kF32;
  bool operator==(const Precision&) const = default;
};

/// Where and how a replica computes. A Model has one, and passes it to its layers (Pass::execution); losses, metrics
/// and update rules get the same. All tensors of a call lie in its memory space.
///
/// Code for host memory reads and writes `Tensor::host()` and `VectorView::host()`, which throw for memory of a device,
/// and returns when its work is done. The default is host memory. Copies are cheap, and share the workspace.
class Execution {
 public:
  /// Host memory, with a workspace of its own.
  Execution() : Execution(Precision{}) {}
  explicit Execution(Precision precision) : precision_(precision), workspace_(std::make_shared<Workspace>()) {}
  /// @param stream  a stream of the device `memory.space`
  /// @throws InvalidArgument  a device without a stream, or a stream of another device
  Execution(TensorMemory memory, StreamView stream, Precision precision);
  /// With the kernels of the built-in layers, losses and optimizers for a device; see device_execution.
  /// @param workspace  of `memory`   @param log  of what `memory` allocates
  Execution(TensorMemory memory, StreamView stream, Precision precision, std::shared_ptr<Workspace> workspace,
            std::shared_ptr<const DeviceKernels> kernels, std::shared_ptr<MemoryLog> log);

  MemorySpace space() const { return memory_.space; }
  /// For tensors that a layer keeps between calls.
  const TensorMemory& memory() const { return memory_; }
  /// Work on a device is enqueued here, and may be pending when a function returns. Not valid in host memory.
  StreamView stream() const { return stream_; }
  Precision precision() const { return precision_; }
  /// The same with other types.
  Execution with(Precision precision) const {
    Execution other = *this;
    other.precision_ = precision;
    return other;
  }
  Workspace& workspace() const { return *workspace_; }
  /// Used by the built-in layers. Null in host memory.
  const std::shared_ptr<const DeviceKernels>& device_kernels() const { return kernels_; }
  /// Used by the trainer's graphs. Null unless there are `device_kernels`.
  const std::shared_ptr<MemoryLog>& memory_log() const { return log_; }

  /// Throws unless `space` is this execution's. @param what  names the values: "the input of the model"
  /// @throws InvalidArgument  names both spaces
  void require(MemorySpace space, const char* what) const;

 private:
  TensorMemory memory_;
  StreamView stream_;
  Precision precision_;
  std::shared_ptr<Workspace> workspace_;
  std::shared_ptr<const DeviceKernels> kernels_;
  std::shared_ptr<MemoryLog> log_;
};

}  // namespace trainer
}  // namespace FARANDOLE_API
