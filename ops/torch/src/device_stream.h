// SPDX-License-Identifier: Apache-2.0
// The stream in which a process group's collectives on a device run, by torch's interface for any kind of device.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace farandole_torch {

inline c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Makes later work of `later` wait for the work that `earlier` has by now.
inline void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

/// A stream for collectives, beside those of the computation.
inline c10::Stream make_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace farandole_torch
