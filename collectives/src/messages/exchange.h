// SPDX-License-Identifier: Apache-2.0
// Short vectors between ranks that share no memory: they travel with the comparison of calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "messages/call_comparison.h"
#include "operation/call.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/short_collective.h"
#include "selection/method.h"

namespace farandole {

extern const Method kExchangeMethod;

/// Every rank gets what all ranks show with the comparison, and takes what it needs. The output is written once the
/// ranks have agreed.
class Exchange final : public Operation {
 public:
  /// @param call  valid; outlives the operation
  Exchange(const Group& group, const Hierarchy* hierarchy, ShmGroup* host, const Call& call,
           const Descriptor& descriptor, std::uint64_t sequence);

  State advance() override;
  std::vector<int> waits_for() const override { return comparison_->waits_for(); }
  BufferHazard withdraw() override { return comparison_->withdraw(); }

 private:
  ShownBlocks blocks() const;

  const Group& group_;
  const std::vector<std::size_t> firsts_;  // of uneven parts
  const ShortCollective collective_;
  const std::unique_ptr<CallComparison> comparison_;
};

}  // namespace farandole
