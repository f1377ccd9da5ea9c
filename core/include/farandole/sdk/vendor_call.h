// SPDX-License-Identifier: Apache-2.0
// Arguments of a collective that a vendor's library (MPI, NCCL) runs by itself.
#pragma once

#include <cstddef>

#include "farandole/core/collective.h"
#include "farandole/core/dtype.h"
#include "farandole/core/export.h"

namespace farandole FARANDOLE_API {

/// Arguments of a collective of the vendor, with equal parts. In allgather, gather, reduce_scatter, scatter and
/// alltoall, `input` or `output` or both hold a part per rank.
///
/// In place if `input` equals `output`; in allgather, gather and scatter, and in reduce_scatter on devices, also if the
/// rank's part lies at its place in the vector of all parts.
struct VendorCall {
  Collective collective = Collective::kBarrier;
  const void* input = nullptr;  ///< ignored in a broadcast of MPI, whose data is in `output`
  void* output = nullptr;
  std::size_t count = 0;  ///< elements of a part, in collectives with parts; else elements of the vector
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;  ///< kAverage: the sum
  int root = 0;                  ///< index among the processes or ranks of the group
  /// Multiplies the result; a DeviceGroup may multiply each rank's input instead. 1 unless DeviceGroup::scales returns
  /// true.
  double factor = 1.0;
};

}  // namespace FARANDOLE_API
