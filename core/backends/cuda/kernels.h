// SPDX-License-Identifier: Apache-2.0
// The bodies of the kernels of kernels.cu, for GPUs and for the processors of tests; kernel_list.h names them. Each is
// a function of (task, worker, workers): so many workers share the elements of the task, in any number and order.
// launch_shape.h says how many there are on a GPU, and why each has several loads under way.
//
// Addresses are multiples of the size of their elements. An output is apart from the inputs, or exactly one of them
// that has elements of the same size. Hence no compiler could move a load before the store of another packet: here the
// loads of a pass stand before its first store.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/kernel_arguments.h"
#include "cuda/launch_shape.h"
#include "farandole/internal/arithmetic.h"
#include "farandole/internal/host_device.h"

#if defined(__CUDACC__)
#define FARANDOLE_UNROLL _Pragma("unroll")
#else
#define FARANDOLE_UNROLL
#endif

namespace farandole::cuda {

/// The packets where the addresses of a task do not agree on 16 bytes: pieces of vectors begin anywhere.
inline constexpr unsigned kSmallPacketBytes = 4;
/// Workers that load what lies side by side: those that a GPU runs in step.
inline constexpr unsigned kNeighbours = 32;

// What kernels do with one element of each input. Each is made of the task's factor.

template <class T>
struct Copy {
  using Input = T;
  using Output = T;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit Copy(double /*factor*/) {}
  FARANDOLE_HOST_DEVICE T operator()(T value) const { return value; }
};

template <class T, class Op>
struct Reduce {
  using Input = T;
  using Output = T;
  static constexpr int kInputs = 2;
  FARANDOLE_HOST_DEVICE explicit Reduce(double /*factor*/) {}
  FARANDOLE_HOST_DEVICE T operator()(T left, T right) const {
    using Acc = kernels::Accumulator<T>;
    return kernels::convert<T>(Op::template apply<Acc>(kernels::convert<Acc>(left), kernels::convert<Acc>(right)));
  }
};

template <class From, class To>
struct Cast {
  using Input = From;
  using Output = To;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit Cast(double /*factor*/) {}
  FARANDOLE_HOST_DEVICE To operator()(From value) const { return kernels::cast<To>(value); }
};

/// Floating-point types.
template <class T>
class Multiply {
 public:
  using Input = T;
  using Output = T;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit Multiply(double factor) : factor_(static_cast<kernels::ScaleType<T>>(factor)) {}
  FARANDOLE_HOST_DEVICE T operator()(T value) const { return kernels::multiply(value, factor_); }

 private:
  kernels::ScaleType<T> factor_;
};

/// Integers.
template <class T>
class MultiplyAndTruncate {
 public:
  using Input = T;
  using Output = T;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit MultiplyAndTruncate(double factor) : factor_(factor) {}
  FARANDOLE_HOST_DEVICE T operator()(T value) const {
    return kernels::truncate<T>(static_cast<double>(value) * factor_);
  }

 private:
  double factor_;
};

/// Integers, where the factor is 1/divisor.
template <class T>
class Divide {
 public:
  using Input = T;
  using Output = T;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit Divide(double divisor) : divisor_(static_cast<kernels::QuotientType<T>>(divisor)) {}
  FARANDOLE_HOST_DEVICE T operator()(T value) const { return kernels::divide(value, divisor_); }

 private:
  kernels::QuotientType<T> divisor_;
};

/// What one instruction loads or stores, as it lies in registers. Elements are taken out where they are needed, so that
/// those of short types do not take a register each while they are under way.
template <std::size_t kBytes>
struct [[gnu::may_alias]] alignas(kBytes) Packet {
  using Word =
      std::conditional_t<kBytes == 1, std::uint8_t, std::conditional_t<kBytes == 2, std::uint16_t, std::uint32_t>>;
  Word words[kBytes / sizeof(Word)];
};
template <class T, unsigned kElements>
struct Elements {
  T values[kElements];
};

/// What the function makes of one packet of each input.
template <unsigned kElements, class Function, class InputPacket>
FARANDOLE_HOST_DEVICE inline auto apply(const Function& function, const InputPacket (&packets)[Function::kInputs]) {
  using Inputs = Elements<typename Function::Input, kElements>;
  Inputs inputs[Function::kInputs];
  FARANDOLE_UNROLL
  for (int input = 0; input < Function::kInputs; ++input) inputs[input] = std::bit_cast<Inputs>(packets[input]);
  Elements<typename Function::Output, kElements> results;
  FARANDOLE_UNROLL
  for (unsigned i = 0; i < kElements; ++i) {
    if constexpr (Function::kInputs == 2) {
      results.values[i] = function(inputs[0].values[i], inputs[1].values[i]);
    } else {
      results.values[i] = function(inputs[0].values[i]);
    }
  }
  return std::bit_cast<Packet<sizeof results>>(results);
}

/// GPUs refuse other addresses, processors mostly take them: the kernels of tests look.
template <class T>
FARANDOLE_HOST_DEVICE inline bool is_aligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(T) == 0;
}

/// The worker's packets among those of the elements [first, first + packets * kElements), whose addresses are aligned
/// to packets. Neighbouring workers take neighbouring packets, kNeighbours of them kPacketsInFlight rows in one pass,
/// whose distance is known to the compiler: addresses of each packet would take too many registers.
template <unsigned kElements, class Function>
FARANDOLE_HOST_DEVICE inline void run_packets(const Function& function, const KernelTask& task, std::uint64_t first,
                                              std::uint64_t packets, unsigned worker, unsigned workers) {
  using Input = typename Function::Input;
  using Output = typename Function::Output;
  using InputPacket = Packet<kElements * sizeof(Input)>;
  auto* const output = reinterpret_cast<Packet<kElements * sizeof(Output)>*>(static_cast<Output*>(task.output) + first);
  assert(packets == 0 || is_aligned(output));
  const InputPacket* inputs[Function::kInputs];
  FARANDOLE_UNROLL
  for (int input = 0; input < Function::kInputs; ++input) {
    const void* const memory = input == 0 ? task.left : task.right;
    inputs[input] = reinterpret_cast<const InputPacket*>(static_cast<const Input*>(memory) + first);
    assert(packets == 0 || is_aligned(inputs[input]));
  }
  for (std::uint64_t next = worker;; next += workers) {
    const std::uint64_t at = next / kNeighbours * (kNeighbours * kPacketsInFlight) + next % kNeighbours;
    if (at >= packets) break;
    const auto rest = static_cast<unsigned>(std::min<std::uint64_t>(packets - at, kNeighbours * kPacketsInFlight));
    InputPacket loaded[kPacketsInFlight][Function::kInputs];
    FARANDOLE_UNROLL
    for (unsigned row = 0; row < kPacketsInFlight; ++row) {
      if (row * kNeighbours >= rest) continue;
      FARANDOLE_UNROLL
      for (int input = 0; input < Function::kInputs; ++input) {
        loaded[row][input] = inputs[input][at + row * kNeighbours];
      }
    }
    FARANDOLE_UNROLL
    for (unsigned row = 0; row < kPacketsInFlight; ++row) {
      if (row * kNeighbours >= rest) continue;
      output[at + row * kNeighbours] = apply<kElements>(function, loaded[row]);
    }
  }
}

/// How many elements the address lies behind one that is aligned to a packet.
template <unsigned kElements, class T>
FARANDOLE_HOST_DEVICE inline unsigned elements_behind_packet(const T* address) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) / sizeof(T) % kElements);
}

/// The worker's share of a task, in packets of kElements where all addresses are aligned for them at the same elements.
/// Before and behind these packets it takes single elements. False, with nothing done, if the addresses never are.
template <unsigned kElements, class Function>
FARANDOLE_HOST_DEVICE inline bool run_in_packets_of(const Function& function, const KernelTask& task, unsigned worker,
                                                    unsigned workers) {
  using Input = typename Function::Input;
  const unsigned behind = elements_behind_packet<kElements>(static_cast<typename Function::Output*>(task.output));
  if (elements_behind_packet<kElements>(static_cast<const Input*>(task.left)) != behind) return false;
  if constexpr (Function::kInputs == 2) {
    if (elements_behind_packet<kElements>(static_cast<const Input*>(task.right)) != behind) return false;
  }
  const std::uint64_t before_first = (kElements - behind) % kElements;
  const std::uint64_t head = before_first < task.count ? before_first : task.count;
  const std::uint64_t packets = (task.count - head) / kElements;
  run_packets<kElements>(function, task, head, packets, worker, workers);
  if constexpr (kElements > 1) {
    const std::uint64_t rest = task.count - packets * kElements;
    for (std::uint64_t i = worker; i < rest; i += workers) {
      run_packets<1>(function, task, i < head ? i : i + packets * kElements, 1, 0, 1);
    }
  }
  return true;
}

/// The kernel that applies Function to all elements.
template <class Function>
struct Elementwise {
  FARANDOLE_HOST_DEVICE static void run(const KernelTask& task, unsigned worker, unsigned workers) {
    run(Function(task.factor), task, worker, workers);
  }
  FARANDOLE_HOST_DEVICE static void run(const Function& function, const KernelTask& task, unsigned worker,
                                        unsigned workers) {
    constexpr unsigned kElementBytes = std::max(sizeof(typename Function::Input), sizeof(typename Function::Output));
    constexpr unsigned kSmallPacket = std::max(1U, kSmallPacketBytes / kElementBytes);
    if (run_in_packets_of<kPacketBytes / kElementBytes>(function, task, worker, workers)) return;
    if (run_in_packets_of<kSmallPacket>(function, task, worker, workers)) return;
    if constexpr (kSmallPacket > 1) run_in_packets_of<1>(function, task, worker, workers);
  }
};

/// The kernel that scales integers as scale() does.
template <class T>
struct ScaleIntegers {
  FARANDOLE_HOST_DEVICE static void run(const KernelTask& task, unsigned worker, unsigned workers) {
    if (const double divisor = kernels::divisor_of(task.factor); divisor != 0) {
      Elementwise<Divide<T>>::run(Divide<T>(divisor), task, worker, workers);
    } else {
      Elementwise<MultiplyAndTruncate<T>>::run(task, worker, workers);
    }
  }
};

/// The tasks `first_task`, `first_task + task_step`, … of a launch.
template <class Kernel>
FARANDOLE_HOST_DEVICE inline void run_tasks(const KernelArguments& arguments, unsigned first_task, unsigned task_step,
                                            unsigned worker, unsigned workers) {
  for (unsigned task = first_task; task < arguments.task_count; task += task_step) {
    Kernel::run(arguments.tasks[task], worker, workers);
  }
}

}  // namespace farandole::cuda
