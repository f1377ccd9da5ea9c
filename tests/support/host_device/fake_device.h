// SPDX-License-Identifier: Apache-2.0
// Control of the double of libcuda and libnccl by tests, in addition to CUDA's and NCCL's own calls. A program links
// `fake_cuda` and `fake_nccl`, or finds these functions by dlsym. All functions are thread-safe and non-blocking.
#pragma once

#include <stddef.h>

extern "C" {

/// Misuses that were reported in this process.
unsigned long fake_device_misuse_count(void);
/// Copies the oldest report that was not taken yet, cut off at `bytes`. Returns 0 if there is none.
int fake_device_take_misuse(char* text, size_t bytes);

/// The `nth` call from now of this function (1: the next; 0: every one) returns `error` and does nothing else.
/// @param function  "cuMemAlloc" or "cuMemAlloc_v2", "ncclAllReduce", …
void fake_device_inject(const char* function, unsigned nth, int error);
/// The device is lost after that many further calls of the driver: then nearly all of them return 700, NCCL's return
/// ncclUnhandledCudaError, and what is enqueued does nothing.
void fake_device_lose(unsigned calls);
/// This stream hangs before the `nth` item that is enqueued from now: 1 is the next.
/// @param stream  null: the default stream of the current device
void fake_device_stick(void* stream, unsigned nth);
/// Removes all injected errors, the loss of devices, and all hangs.
void fake_device_restore(void);

/// Sets an option at run time, by the name that it has in the environment; fake_options.cpp lists them. Returns 0 if
/// there is none of this name, or the text is no number. FAKE_DEVICE_COUNT, _MEMORY and _SEED count at first use only.
int fake_device_set(const char* option, const char* value);
/// How often this function was called in this process, failed calls included.
unsigned long fake_device_calls(const char* function);
/// How many threads are in a call of the driver that waits: for a device, as cuMemFree does, or for the driver's lock.
unsigned fake_device_waits_in_driver(void);

/// Memory that a function in a stream reads or writes.
struct FakeDeviceAccess {
  const void* begin;
  size_t bytes;
  int is_write;
};
/// Enqueues a function of the host as a kernel of the current device: the stream's thread calls `run(argument, 1)`, or
/// `run(argument, 0)` if the device is lost by then. Returns a CUresult; after an error, `run` is never called.
/// @param name  for reports; must live until the process ends
int fake_device_launch(void* stream, const char* name, void (*run)(void* argument, int is_possible), void* argument,
                       const FakeDeviceAccess* accesses, size_t count);
/// Translates an address of device memory for a function in a stream. Call it when the function is enqueued.
void* fake_device_stream_address(const void* address);

/// How often a group of this communicator, or a host that connects it, has looked for progress in vain since it last
/// had any. Grows only while it waits for a peer. (fake_nccl)
unsigned long fake_nccl_idle_polls(void* comm);
/// Sets the error that ncclCommGetAsyncError reports from now on. (fake_nccl)
void fake_nccl_set_async_error(void* comm, int error);

}  // extern "C"
