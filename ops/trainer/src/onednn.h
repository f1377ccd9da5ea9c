// SPDX-License-Identifier: Apache-2.0
// Shared setup of oneDNN: engine, instruction set, errors.
#pragma once

#include <dnnl.hpp>

#include <new>
#include <string>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"

namespace farandole::trainer {

/// Limits oneDNN to the instruction set that FARANDOLE_ISA allows. Must run before oneDNN's first primitive;
/// idempotent.
inline void bound_onednn_isa() {
  static const bool bounded = [] {
    if (active_isa() == Isa::kAvx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    if (active_isa() == Isa::kBaseline) dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    return true;
  }();
  (void)bounded;
}

/// True if oneDNN may use AVX2, but not AVX-512.
inline bool onednn_has_avx2_only() {
  bound_onednn_isa();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx2 || isa == dnnl::cpu_isa::avx2_vnni;
}

/// oneDNN's engine for the CPU; shared by the process, thread-safe.
inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine = [] {
    bound_onednn_isa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

/// Calls `action`, and translates oneDNN's errors. `what` names the operation and its shapes.
template <class Action>
auto with_onednn(const std::string& what, const Action& action) {
  try {
    return action();
  } catch (const dnnl::error& error) {
    const std::string message = what + ": oneDNN failed: " + error.what();
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    if (error.status == dnnl_unimplemented) throw Unsupported(message + "; use ConvolutionLibrary::kEigen");
    throw InternalError(message);
  }
}

}  // namespace farandole::trainer
