// SPDX-License-Identifier: Apache-2.0
// Collectives on short vectors: data and entry come together, and nobody answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "operation/short_call.h"
#include "shared_memory/shm_group.h"

namespace farandole {

/// One rank's side of a collective that is done at once. Every rank shows what others need of it, in its entry line or
/// in the first slot of its staging memory, and enters. Once all have entered each takes what it needs; it reads its
/// own data where it has shown them, so outputs may lie anywhere on inputs.
class AtOnce {
 public:
  /// @param call  its whole vector fits a slot
  /// @param firsts  where the part of each rank begins in the whole vector, and the end; empty: parts are equal
  AtOnce(ShmGroup& host, int lane, const ShortCall& call, std::span<const std::size_t> firsts = {});
  /// Before this rank enters. @param prescale  what its data are multiplied by
  void show(double prescale);
  /// After all have entered. @param postscale  what results of reductions are multiplied by
  void take(double postscale);

 private:
  struct Extent {
    std::size_t first = 0, count = 0;  // elements
  };
  Extent part(int local) const;
  std::size_t shown_by(int local) const;
  bool is_in_line(int local) const;
  std::byte* slot(int local) const { return host_.input_slot(local, lane_, 0); }
  EntryLine& entry(int local) const { return host_.lane(local, lane_).entry; }
  std::size_t bytes(std::size_t count) const { return count * element_bytes_; }
  void reduce_from_all(Extent at, double postscale);
  void copy_from(int local, Extent at, std::size_t to) const;

  ShmGroup& host_;
  const int lane_;
  const ShortCall call_;
  const std::span<const std::size_t> firsts_;
  const std::size_t element_bytes_;
  const std::size_t total_;
};

enum class Attempt {
  kDone,
  kEntered,   ///< the others see this rank's entry, but the result is not there
  kNotBegun,  ///< nothing has happened
};
/// A first attempt at operation `number`: enters, and waits for the others as long as `waiter` does not have to sleep.
/// If it takes longer, or ranks called different things, a ShmOperation of the same number takes over. Never throws.
Attempt try_at_once(ShmGroup& host, std::uint64_t number, std::uint64_t digest, const ShortCall& call, double postscale,
                    Waiter& waiter);

}  // namespace farandole
