// SPDX-License-Identifier: Apache-2.0
// Checks at the beginning of each function of libfake_cuda.
#pragma once

#include <atomic>

#include "cuda/cuda_api.h"
#include "fake_driver_lock.h"
#include "fake_faults.h"

namespace farandole::fake {

class Stream;

// Results of cuda.h that cuda_api.h lacks.
inline constexpr cuda::CUresult kNotInitialized = 3;
inline constexpr cuda::CUresult kInvalidDevice = 101;
inline constexpr cuda::CUresult kInvalidContext = 201;
inline constexpr cuda::CUresult kInvalidHandle = 400;

/// Precondition of a function: none, cuInit, or a current context.
enum class Needs : std::uint8_t { kNothing, kDriver, kContext };

/// Counts a call of a driver function. Returns the error with which the call must fail immediately; 0 to continue.
cuda::CUresult begin_cuda_call(CallSite& site, Needs needs);
/// Reports a call that CUDA forbids on this thread while a stream is captured (captures_forbid_unsafe_calls). In CUDA
/// such a call fails and invalidates the capture.
void check_captures(const CallSite& site);
/// The calling thread's mode for cuThreadExchangeStreamCaptureMode.
int& capture_mode_of_thread();
/// Finds the stream in which a call enqueues. If there is none, reports a misuse and returns the error with which the
/// call must fail.
cuda::CUresult find_target(const char* call, cuda::CUstream handle, Stream*& target);
/// True once cuInit has succeeded.
std::atomic<bool>& is_initialised();

// The first statement of an exported function: takes the driver's lock, and returns if the call must fail.
#define FARANDOLE_FAKE_CALL(needs)                                                          \
  static ::farandole::fake::CallSite call_site(__func__);                                   \
  ::farandole::fake::DriverLock driver_lock((needs) != ::farandole::fake::Needs::kNothing); \
  if (const CUresult failed = begin_cuda_call(call_site, needs); failed != CUDA_SUCCESS) return failed

}  // namespace farandole::fake
