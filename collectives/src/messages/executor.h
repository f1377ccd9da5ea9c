// SPDX-License-Identifier: Apache-2.0
// The host executor: runs one rank's schedule over any transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/core/buffer.h"
#include "operation/group.h"
#include "operation/operation.h"
#include "operation/scratch.h"
#include "schedule/layout.h"
#include "schedule/schedule_cache.h"

namespace farandole {

/// What a schedule runs on. Addresses are those of element 0 of the layout, which need not exist: a rank that owns one
/// chunk passes an address from which that chunk's offset leads to its memory.
struct Execution {
  std::shared_ptr<const PreparedSchedule> prepared;
  Offsets offsets;
  std::uintptr_t input = 0;
  std::uintptr_t data = 0;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  double final_scale = 1.0;  ///< applied where a piece is fully reduced
  int first_result = 0;      ///< the pieces that make up the result: those of them that no step writes are copied
  int result_pieces = 0;     ///< from the input at the end
  std::uint8_t lane = 0;
  Traffic traffic = Traffic::kShort;
};

/// Follows the dependencies of the schedule: starts each step as soon as what it waits for is complete, and messages of
/// one channel in program order. Receives into bounce memory and reduces, unless the transport does both at once.
class Executor final : public Operation {
 public:
  Executor(const Group& group, Execution execution);
  ~Executor() override;

  State advance() override;
  std::vector<int> waits_for() const override;
  BufferHazard withdraw() override;

 private:
  struct Pending {
    int step;
    Scratch bounce;  ///< of an unfused receive-and-reduce; outlives the transfer
    std::unique_ptr<Transfer> transfer;
  };
  struct Located {
    std::uintptr_t address;
    std::size_t count;
  };
  Located locate(const Region& region) const;
  bool start_ready();
  bool test_pending();
  /// False if the step must wait for bounce memory.
  bool start(int step);
  void start_message(int index, const Step& step);
  void run_locally(const Step& step);
  void finish(const Step& step);
  void complete(int step);
  void resolve_dependency(int step);
  void copy_untouched() const;

  const Group& group_;
  const Execution execution_;
  const Schedule& schedule_;
  const std::size_t element_bytes_;
  std::vector<Scratch> scratch_;
  std::vector<int> unmet_;
  std::deque<int> ready_;
  std::vector<Pending> pending_;
  std::vector<std::pair<int, bool>> waiting_;  // of a look at `pending_`: channels that wait, by peer and direction
  std::map<int, int> bounces_;                 // unfused receives in flight, by peer
  std::vector<Scratch> spare_;                 // bounce memory to reuse
  std::size_t left_;                           // steps that are not complete
};

}  // namespace farandole
