// SPDX-License-Identifier: Apache-2.0
// Functions by which tests control the double of libcuda and libnccl, in addition to CUDA's and NCCL's own functions. A
// program links `fake_cuda` and `fake_nccl`, or finds these functions by dlsym. All functions are thread-safe and
// non-blocking.
#pragma once

#include <stddef.h>

extern "C" {

/// Returns the number of misuses that were reported in this process.
unsigned long fake_device_misuse_count(void);
/// Removes the oldest report and copies it to `text`, cut off at `bytes`. Returns 0 if there is none.
int fake_device_take_misuse(char* text, size_t bytes);

/// Makes the `nth` call from now of this function (1: the next call; 0: every call) return `error` and do nothing else.
/// @param function  "cuMemAlloc" or "cuMemAlloc_v2", "ncclAllReduce", …
void fake_device_inject(const char* function, unsigned nth, int error);
/// Makes the device lost after `calls` further driver calls. Then nearly all driver calls return 700, NCCL's calls
/// return ncclUnhandledCudaError, and enqueued work does nothing.
void fake_device_lose(unsigned calls);
/// Makes this stream hang before the `nth` item that is enqueued from now; 1 is the next item.
/// @param stream  null: the default stream of the current device
void fake_device_stick(void* stream, unsigned nth);
/// Removes all injected errors, the loss of devices, and all hangs.
void fake_device_restore(void);

/// Sets an option at run time. @param option  name of its environment variable; fake_options.cpp lists the options
/// Returns 0 if there is no such option, or if the value is not a number. Changes of FAKE_DEVICE_COUNT, _MEMORY and
/// _SEED after the first use of the double have no effect.
int fake_device_set(const char* option, const char* value);
/// Returns how often this function was called in this process, failed calls included.
unsigned long fake_device_calls(const char* function);
/// Returns the number of threads whose driver call waits: for a device, as cuMemFree does, or for the driver's lock.
unsigned fake_device_waits_in_driver(void);

/// Memory that a function in a stream reads or writes.
struct FakeDeviceAccess {
  const void* begin;
  size_t bytes;
  int is_write;
};
/// Enqueues a host function that stands for a kernel of the current device: the stream's thread calls `run(argument,
/// 1)`, or `run(argument, 0)` if the device is lost by then; in a graph again for each launch. `release(argument)` is
/// called once, after the last run. Returns a CUresult; after an error neither is called.
/// @param name  for reports; must live until the process ends   @param release  may be null
int fake_device_launch(void* stream, const char* name, void (*run)(void* argument, int is_possible), void* argument,
                       void (*release)(void* argument), const FakeDeviceAccess* accesses, size_t count);
/// Translates an address of device memory for a function in a stream. Call it when the function is enqueued.
void* fake_device_stream_address(const void* address);

/// Returns how often a group of this communicator, or a host thread that connects it, has polled in vain since the last
/// progress. Grows only while the communicator waits for a peer. (fake_nccl)
unsigned long fake_nccl_idle_polls(void* comm);
/// Sets the error that ncclCommGetAsyncError reports from now on. (fake_nccl)
void fake_nccl_set_async_error(void* comm, int error);

}  // extern "C"
