// SPDX-License-Identifier: Apache-2.0
// The execution of a replica on its device.
#pragma once

#include "farandole/collectives/communicator.h"
#include "farandole/sdk/device.h"
#include "farandole/trainer/execution.h"
#include "kernels/kernels.h"

namespace farandole::trainer {

/// Returns an execution on the device of this rank (Communicator::device), with a stream of its own and the kernels of
/// the built-in layers. @param communicator  outlives the execution
/// @throws InvalidArgument  there is no device; says why   @throws Unsupported  the trainer cannot compute on it: the
/// plug-in or cuBLAS is missing, or a setting names a cuDNN that cannot be used; with a remedy   @throws DeviceError
FARANDOLE_API Execution device_execution(Communicator& communicator, const DeviceComputation& computation = {});

/// A stream of a device beside those of executions. Devices keep streams until the process ends, so the destructor
/// keeps the stream for the next owner, once its work is done.
class FARANDOLE_API BorrowedStream {
 public:
  explicit BorrowedStream(Device& device);
  ~BorrowedStream();
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

  StreamView view() const { return stream_; }

 private:
  Device& device_;
  const StreamView stream_;
};

}  // namespace farandole::trainer
