// SPDX-License-Identifier: Apache-2.0
// Checks at the beginning of each function of libfake_cuda.
#pragma once

#include <atomic>

#include "cuda/cuda_api.h"
#include "fake_driver_lock.h"
#include "fake_faults.h"

namespace farandole::fake {

class Stream;

// Further results of cuda.h.
inline constexpr cuda::CUresult kNotInitialized = 3;
inline constexpr cuda::CUresult kInvalidDevice = 101;
inline constexpr cuda::CUresult kInvalidContext = 201;
inline constexpr cuda::CUresult kInvalidHandle = 400;

/// Precondition of a function: none, cuInit, or a current context.
enum class Needs : std::uint8_t { kNothing, kDriver, kContext };

/// Counts a call of a function of the driver. Returns the error with which the call must fail at its beginning.
cuda::CUresult begin_cuda_call(CallSite& site, Needs needs);
/// Reports a call that CUDA forbids on this thread while a stream is captured, where it fails and invalidates the
/// capture: see captures_forbid_unsafe_calls.
void check_captures(const CallSite& site);
/// The calling thread's mode for cuThreadExchangeStreamCaptureMode.
int& capture_mode_of_thread();
/// Finds the stream of a call that enqueues there. Returns the error with which the call must fail, after a report.
cuda::CUresult find_target(const char* call, cuda::CUstream handle, Stream*& target);
/// True once cuInit has succeeded.
std::atomic<bool>& is_initialised();

// The first statement of an exported function: takes the driver's lock, and returns if the call must fail.
#define FARANDOLE_FAKE_CALL(needs)                                                          \
  static ::farandole::fake::CallSite call_site(__func__);                                   \
  ::farandole::fake::DriverLock driver_lock((needs) != ::farandole::fake::Needs::kNothing); \
  if (const CUresult failed = begin_cuda_call(call_site, needs); failed != CUDA_SUCCESS) return failed

}  // namespace farandole::fake
