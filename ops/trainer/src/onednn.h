// SPDX-License-Identifier: Apache-2.0
// What all uses of oneDNN share: the engine, the instruction set, and errors.
#pragma once

#include <dnnl.hpp>

#include <new>
#include <string>

#include "farandole/core/error.h"
#include "farandole/core/reduce.h"

namespace farandole::trainer {

/// Bounds oneDNN by FARANDOLE_ISA; must come before its first primitive, and does nothing from the second time on.
inline void bound_onednn_isa() {
  static const bool bounded = [] {
    if (active_isa() == Isa::kAvx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    if (active_isa() == Isa::kBaseline) dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    return true;
  }();
  (void)bounded;
}

/// The processor; one per process, thread-safe.
inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine = [] {
    bound_onednn_isa();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

/// Calls `action`, turning oneDNN's errors into ours. `what` names the operation and its shapes.
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
