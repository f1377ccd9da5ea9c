// SPDX-License-Identifier: Apache-2.0
// Cuts a list of gradients into buckets; packs and unpacks buckets.
#pragma once

#include <cstddef>
#include <vector>

#include "farandole/collectives/communicator.h"
#include "farandole/gradients/gradient_averager.h"
#include "farandole/sdk/device.h"

namespace farandole {

/// Gradients that are reduced by the same allreduce: `count` entries of GradientBuckets::reduced from `first` on.
struct Bucket {
  std::size_t first = 0, count = 0;
  std::size_t gradients = 0;  ///< number of the caller's gradients, each tied gradient counted
  std::size_t missing = 0;    ///< number of these gradients that are not ready yet in this training step
  bool in_place = false;      ///< reduced in the gradients' own memory; otherwise in `packed`
  bool refused = false;       ///< started as a call that this rank refuses, so that the call fails on every rank
  Buffer packed;
  BufferView view;  ///< memory of the allreduce; of type GradientOptions::communicate_as if gradients are converted
  Work work;
};

/// An averager's gradients, cut into buckets.
struct GradientBuckets {
  std::vector<std::size_t> tied;       ///< per gradient: index of the first gradient of the same memory
  std::vector<BufferView> reduced;     ///< memory of the gradients, tied gradients once
  std::vector<Bucket> buckets;         ///< in the order of reduction: from the last gradient to the first
  std::vector<std::size_t> bucket_of;  ///< per gradient; for tied gradients the bucket of the tie's first gradient

  GradientBuckets() = default;
  /// Cuts the gradients into buckets, and allocates the memory of packed buckets. @param tied_spans  result of
  /// `find_tied`   @param options  with bucket sizes other than 0
  GradientBuckets(Communicator& communicator, const std::vector<GradientSpan>& gradients,
                  std::vector<std::size_t> tied_spans, const GradientOptions& options);

  /// Copies each span of a packed bucket into the packed memory, and converts to the bucket's type. No-op for buckets
  /// in place. @param device  null for host memory; otherwise the work is enqueued in `stream`, in a single launch
  void pack(const Bucket& bucket, Device* device, StreamView stream) const { copy(bucket, device, stream, true); }
  /// The reverse of `pack`.
  void unpack(const Bucket& bucket, Device* device, StreamView stream) const { copy(bucket, device, stream, false); }

 private:
  void copy(const Bucket& bucket, Device* device, StreamView stream, bool packs) const;
};

}  // namespace farandole
