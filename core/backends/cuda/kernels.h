// SPDX-License-Identifier: Apache-2.0
// Bodies of the kernels, for GPUs (kernels.cu) and for the CPU that plays the GPU in tests; kernel_list.h lists the
// kernels.
//
// A body is a function of (task, tiles, thread). It processes the share of thread number `thread`, below kBlockThreads,
// in tiles of a task. The results do not depend on how tiles are divided among blocks, or on the order of threads.
// launch_shape.h explains tiles, how many blocks a GPU runs, and why each thread has several loads in flight.
//
// Every address is a multiple of the size of its elements. An output overlaps no input, or is exactly one of the
// inputs, of the same element size. Since the output may be an input, no compiler may move a load before the store of
// another packet; so the source places all loads of a pass before the first store.
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

/// Size of packets if the addresses of a task differ modulo 16 bytes, which happens because pieces of vectors may begin
/// anywhere.
inline constexpr unsigned kSmallPacketBytes = 4;
/// Number of threads that access adjacent packets in the same instruction: a warp.
inline constexpr unsigned kWarpSize = 32;

// Functions that compute an element of the output from an element of each input. The constructor takes the task's
// factor.

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

/// Maps values to integers with the order of the values: the minimum or maximum (Op) of the integers, mapped back by
/// FromOrdered, is that of the values.
template <class T, class Op>
struct ToOrdered {
  using Input = T;
  using Output = kernels::OrderedInteger<T>;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit ToOrdered(double /*factor*/) {}
  FARANDOLE_HOST_DEVICE Output operator()(T value) const { return kernels::Ordered<T, Op>::to_integer(value); }
};

/// Maps the integers of ToOrdered back to the values.
template <class T, class Op>
struct FromOrdered {
  using Input = kernels::OrderedInteger<T>;
  using Output = T;
  static constexpr int kInputs = 1;
  FARANDOLE_HOST_DEVICE explicit FromOrdered(double /*factor*/) {}
  FARANDOLE_HOST_DEVICE T operator()(Input integer) const { return kernels::Ordered<T, Op>::from_integer(integer); }
};

/// Scaling of floating-point types.
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

/// Scaling of integers: computed in double, truncated toward zero.
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

/// Scaling of integers by a factor of the form 1/divisor.
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

/// The bytes that a single instruction loads or stores, kept packed in registers. Elements are extracted when they are
/// used: otherwise each element of a short type would occupy a register while its load is in flight.
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

/// Applies the function to a packet of each input, and returns the packet of the output.
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

/// For assertions: a GPU faults on unaligned addresses, but a CPU mostly accepts them, so kernels compiled for tests
/// must check.
template <class T>
FARANDOLE_HOST_DEVICE inline bool is_aligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(T) == 0;
}

/// Size of the larger element of a function's input and output.
template <class Function>
inline constexpr unsigned kElementBytes = std::max(sizeof(typename Function::Input), sizeof(typename Function::Output));

/// Processes the thread's share of tiles. The tiles contain the elements [first, first + packets * kElements), whose
/// addresses are aligned to packets. Tile 0 begins with element `first`.
///
/// A block takes a tile in one pass, or in several passes if packets are small. In each pass a warp takes
/// kPacketsInFlight rows of kWarpSize packets. The distance between rows is a compile-time constant, so a thread needs
/// an address per input instead of an address per packet, which would take too many registers.
template <unsigned kElements, class Function>
FARANDOLE_HOST_DEVICE inline void run_packets(const Function& function, const KernelTask& task, std::uint64_t first,
                                              std::uint64_t packets, TileRange tiles, unsigned thread) {
  using Input = typename Function::Input;
  using Output = typename Function::Output;
  using InputPacket = Packet<kElements * sizeof(Input)>;
  constexpr unsigned kPassPackets = kBlockThreads * kPacketsInFlight;
  constexpr unsigned kPasses = kTileBytes / (kElementBytes<Function> * kElements * kPassPackets);
  auto* const output = reinterpret_cast<Packet<kElements * sizeof(Output)>*>(static_cast<Output*>(task.output) + first);
  assert(packets == 0 || is_aligned(output));
  const InputPacket* inputs[Function::kInputs];
  FARANDOLE_UNROLL
  for (int input = 0; input < Function::kInputs; ++input) {
    const void* const memory = input == 0 ? task.left : task.right;
    inputs[input] = reinterpret_cast<const InputPacket*>(static_cast<const Input*>(memory) + first);
    assert(packets == 0 || is_aligned(inputs[input]));
  }
  const unsigned place = thread / kWarpSize * (kWarpSize * kPacketsInFlight) + thread % kWarpSize;
  for (std::uint32_t tile = tiles.first; tile < tiles.end; ++tile) {
    for (unsigned pass = 0; pass < kPasses; ++pass) {
      const std::uint64_t at = (std::uint64_t{tile} * kPasses + pass) * kPassPackets + place;
      if (at >= packets) return;
      const auto rest = static_cast<unsigned>(std::min<std::uint64_t>(packets - at, kWarpSize * kPacketsInFlight));
      InputPacket loaded[kPacketsInFlight][Function::kInputs];
      FARANDOLE_UNROLL
      for (unsigned row = 0; row < kPacketsInFlight; ++row) {
        if (row * kWarpSize >= rest) continue;
        FARANDOLE_UNROLL
        for (int input = 0; input < Function::kInputs; ++input) {
          loaded[row][input] = inputs[input][at + row * kWarpSize];
        }
      }
      FARANDOLE_UNROLL
      for (unsigned row = 0; row < kPacketsInFlight; ++row) {
        if (row * kWarpSize >= rest) continue;
        output[at + row * kWarpSize] = apply<kElements>(function, loaded[row]);
      }
    }
  }
}

/// Number of elements from the last packet boundary to `address`.
template <unsigned kElements, class T>
FARANDOLE_HOST_DEVICE inline unsigned elements_past_packet(const T* address) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) / sizeof(T) % kElements);
}

/// Processes the thread's share of tiles in packets of kElements. The block that has tile 0 also processes the elements
/// before the first and after the last aligned packet. Returns false, with nothing done, if the addresses of inputs and
/// output are not aligned to packets at the same elements.
template <unsigned kElements, class Function>
FARANDOLE_HOST_DEVICE inline bool run_in_packets_of(const Function& function, const KernelTask& task, TileRange tiles,
                                                    unsigned thread) {
  using Input = typename Function::Input;
  const unsigned past = elements_past_packet<kElements>(static_cast<typename Function::Output*>(task.output));
  if (elements_past_packet<kElements>(static_cast<const Input*>(task.left)) != past) return false;
  if constexpr (Function::kInputs == 2) {
    if (elements_past_packet<kElements>(static_cast<const Input*>(task.right)) != past) return false;
  }
  const std::uint64_t before_first = (kElements - past) % kElements;
  const std::uint64_t head = before_first < task.count ? before_first : task.count;
  const std::uint64_t packets = (task.count - head) / kElements;
  run_packets<kElements>(function, task, head, packets, tiles, thread);
  if constexpr (kElements > 1) {
    static_assert(2 * (kElements - 1) <= kBlockThreads);
    if (tiles.first == 0 && thread < task.count - packets * kElements) {
      const std::uint64_t element = thread < head ? thread : thread + packets * kElements;
      run_packets<1>(function, task, element, 1, {0, 1}, 0);
    }
  }
  return true;
}

/// Kernel body that applies Function to all elements, in the largest packets that the addresses allow.
template <class Function>
struct Elementwise {
  FARANDOLE_HOST_DEVICE static void run(const KernelTask& task, TileRange tiles, unsigned thread) {
    run(Function(task.factor), task, tiles, thread);
  }
  FARANDOLE_HOST_DEVICE static void run(const Function& function, const KernelTask& task, TileRange tiles,
                                        unsigned thread) {
    constexpr unsigned kSmallPacket = std::max(1U, kSmallPacketBytes / kElementBytes<Function>);
    if (run_in_packets_of<kPacketBytes / kElementBytes<Function>>(function, task, tiles, thread)) return;
    if (run_in_packets_of<kSmallPacket>(function, task, tiles, thread)) return;
    if constexpr (kSmallPacket > 1) run_in_packets_of<1>(function, task, tiles, thread);
  }
};

/// Kernel body that scales integers with the same results as scale() on the host.
template <class T>
struct ScaleIntegers {
  FARANDOLE_HOST_DEVICE static void run(const KernelTask& task, TileRange tiles, unsigned thread) {
    if (const double divisor = kernels::divisor_of(task.factor); divisor != 0) {
      Elementwise<Divide<T>>::run(Divide<T>(divisor), task, tiles, thread);
    } else {
      Elementwise<MultiplyAndTruncate<T>>::run(task, tiles, thread);
    }
  }
};

/// Returns the index of the task that has the tile; task_count if none has it.
template <int kCapacity>
FARANDOLE_HOST_DEVICE inline unsigned task_with_tile(const KernelArguments<kCapacity>& arguments, std::uint32_t tile) {
  unsigned first = 0;
  unsigned count = arguments.task_count;
  while (count > 0) {
    const unsigned half = count / 2;
    if (arguments.tasks[first + half].end_tile <= tile) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

/// Processes a thread's share of a launch. @param thread  number of the thread in its block
template <class Kernel, int kCapacity>
FARANDOLE_HOST_DEVICE inline void run_tasks(const KernelArguments<kCapacity>& arguments, unsigned block,
                                            unsigned blocks, unsigned thread) {
  const TileRange share = tiles_of_block(arguments.tile_count, block, blocks);
  std::uint32_t tile = share.first;
  for (unsigned i = task_with_tile(arguments, tile); tile < share.end; ++i) {
    const TiledTask& tiled = arguments.tasks[i];
    const std::uint32_t end = std::min(tiled.end_tile, share.end);
    Kernel::run(tiled.task, {tile - tiled.first_tile, end - tiled.first_tile}, thread);
    tile = end;
  }
}

}  // namespace farandole::cuda
