// SPDX-License-Identifier: Apache-2.0
// Calls of code that the program has written: data sets, layers, losses, callbacks.
#pragma once

#include <fmt/format.h>

#include <exception>

#include "farandole/collectives/agreement.h"
#include "farandole/collectives/communicator.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/endpoint.h"

namespace farandole::trainer {

/// Calls `code`. If `code` throws on this rank, the other ranks would wait for this rank in the next collective: the
/// job is aborted, so every other rank raises PeerLost with this rank and the text. Rethrows the exception.
/// @param what  names the code: "TrainerOptions::on_step"
template <class Code>
auto call_program(const Communicator& communicator, const char* what, const Code& code) {
  try {
    return code();
  } catch (const RaisedByAll&) {
    throw;
  } catch (const std::exception& error) {
    if (communicator.size() > 1) {
      internals(communicator)
          .endpoint()
          .faults()
          .poison(ErrorKind::kPeerLost, fmt::format("rank {} has stopped training, because {} threw: {}",
                                                    communicator.rank(), what, error.what()));
    }
    throw;
  }
}

/// Calls code that uses this rank's device. If the device fails, the other ranks would wait for this rank in the next
/// collective: the job is aborted with the text. Rethrows the exception.
template <class Code>
auto call_device(const Communicator& communicator, const Code& code) {
  try {
    return code();
  } catch (const RaisedByAll&) {
    throw;
  } catch (const DeviceError& error) {
    if (communicator.size() > 1) {
      internals(communicator)
          .endpoint()
          .faults()
          .poison(ErrorKind::kDeviceError, fmt::format("rank {}: {}", communicator.rank(), error.what()));
    }
    throw;
  }
}

}  // namespace farandole::trainer
