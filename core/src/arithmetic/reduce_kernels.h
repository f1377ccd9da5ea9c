// SPDX-License-Identifier: Apache-2.0
// The loops of reduce.cpp. Every loop is a template of always-inlined code, compiled once per instruction set inside a
// function with the target attribute. `target_clones` would need ifuncs, which run before thread sanitizer is ready.
#pragma once

#include <cstddef>
#include <type_traits>

#include "farandole/core/dtype.h"
#include "farandole/core/reduce.h"
#include "farandole/internal/arithmetic.h"

// Tells the compiler that iterations are independent: an output is disjoint from each input, or is the same memory.
#if defined(__clang__)
#define FARANDOLE_INDEPENDENT_ITERATIONS _Pragma("clang loop vectorize(assume_safety)")
#else
#define FARANDOLE_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace farandole::kernels {

/// Kernel that computes out[i] from inputs[k][first + i], combined as a tree over k. `out` may equal an input.
using Kernel = void (*)(void* out, const void* const* inputs, std::size_t first, std::size_t count);
using ScaleKernel = void (*)(void* out, const void* in, std::size_t count, double factor);

/// Element `i` of 1, 2 or 4 inputs of type In, combined as ((0,1),(2,3)).
template <class In, class Op, int kInputs>
class Combined {
 public:
  [[gnu::always_inline]] inline Combined(const void* const* inputs, std::size_t first)
      : a_(static_cast<const In*>(inputs[0]) + first),
        b_(static_cast<const In*>(inputs[kInputs > 1 ? 1 : 0]) + first),
        c_(static_cast<const In*>(inputs[kInputs > 2 ? 2 : 0]) + first),
        d_(static_cast<const In*>(inputs[kInputs > 2 ? 3 : 0]) + first) {}
  [[gnu::always_inline]] inline Accumulator<In> operator[](std::size_t i) const {
    using Acc = Accumulator<In>;
    if constexpr (kInputs == 1) {
      return convert<Acc>(a_[i]);
    } else if constexpr (kInputs == 2) {
      return Op::template apply<Acc>(convert<Acc>(a_[i]), convert<Acc>(b_[i]));
    } else {
      static_assert(kInputs == 4);
      return Op::template apply<Acc>(Op::template apply<Acc>(convert<Acc>(a_[i]), convert<Acc>(b_[i])),
                                     Op::template apply<Acc>(convert<Acc>(c_[i]), convert<Acc>(d_[i])));
    }
  }

 private:
  const In *a_, *b_, *c_, *d_;
};

/// Combines 1, 2 or 4 inputs of type In, and stores the results as Out.
template <class In, class Out, class Op, int kInputs>
struct Combine {
  [[gnu::always_inline]] static inline void run(void* out, const void* const* inputs, std::size_t first,
                                                std::size_t count) {
    auto* target = static_cast<Out*>(out);
    const Combined<In, Op, kInputs> combined(inputs, first);
    FARANDOLE_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) target[i] = convert<Out>(combined[i]);
  }
};

/// What a FinalKernel does with each result: multiplies it by `factor`, and stores it at `out` and, unless null, at
/// `also`.
struct Finish {
  void* out;
  void* also;
  double factor;
};

/// Kernel that computes the final results of all elements. `out` and `also` may equal an input.
using FinalKernel = void (*)(const Finish& finish, const void* const* inputs, std::size_t count);

/// Results of Combine<T, T, Op, kInputs>, multiplied as Scale<T, Wide> does; not multiplied if Wide is void.
template <class T, class Op, int kInputs, class Wide, bool kTwice>
struct CombineAndFinish {
  [[gnu::always_inline]] static inline void run(const Finish& finish, const void* const* inputs, std::size_t count) {
    auto* out = static_cast<T*>(finish.out);
    [[maybe_unused]] auto* also = static_cast<T*>(finish.also);
    [[maybe_unused]] const double factor = finish.factor;
    const Combined<T, Op, kInputs> combined(inputs, 0);
    FARANDOLE_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) {
      T result = convert<T>(combined[i]);
      if constexpr (!std::is_void_v<Wide>) result = multiply(result, static_cast<Wide>(factor));
      out[i] = result;
      if constexpr (kTwice) also[i] = result;
    }
  }
};

template <class T, class Wide = ScaleType<T>>
struct Scale {
  [[gnu::always_inline]] static inline void run(void* out, const void* in, std::size_t count, double factor) {
    auto* target = static_cast<T*>(out);
    const auto* source = static_cast<const T*>(in);
    const auto wide_factor = static_cast<Wide>(factor);
    FARANDOLE_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) target[i] = multiply(source[i], wide_factor);
  }
};

/// Scales sums of accumulator type, and rounds to T once.
template <class T>
struct ScaleSums {
  [[gnu::always_inline]] static inline void run(void* out, const void* in, std::size_t count, double factor) {
    using Acc = Accumulator<T>;
    auto* target = static_cast<T*>(out);
    const auto* source = static_cast<const Acc*>(in);
    const auto acc_factor = static_cast<Acc>(factor);
    FARANDOLE_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) target[i] = convert<T>(source[i] * acc_factor);
  }
};

template <Isa isa>
struct Target {
  template <class Loop>
  static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  static void finish(const Finish& finish, const void* const* inputs, std::size_t count) {
    Loop::run(finish, inputs, count);
  }
  template <class Loop>
  static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};

#if defined(__x86_64__)
#define FARANDOLE_AVX2 gnu::target("avx2,f16c")
#if defined(__clang__)
#define FARANDOLE_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), clang::min_vector_width(512)
#else
#define FARANDOLE_AVX512 gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif

template <>
struct Target<Isa::kAvx2> {
  template <class Loop>
  [[FARANDOLE_AVX2]] static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX2]] static void finish(const Finish& finish, const void* const* inputs, std::size_t count) {
    Loop::run(finish, inputs, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX2]] static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};

template <>
struct Target<Isa::kAvx512> {
  template <class Loop>
  [[FARANDOLE_AVX512]] static void combine(void* out, const void* const* inputs, std::size_t first, std::size_t count) {
    Loop::run(out, inputs, first, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX512]] static void finish(const Finish& finish, const void* const* inputs, std::size_t count) {
    Loop::run(finish, inputs, count);
  }
  template <class Loop>
  [[FARANDOLE_AVX512]] static void scale(void* out, const void* in, std::size_t count, double factor) {
    Loop::run(out, in, count, factor);
  }
};
#endif

}  // namespace farandole::kernels
