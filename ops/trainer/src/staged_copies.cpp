// SPDX-License-Identifier: Apache-2.0
#include "staged_copies.h"

#include <algorithm>
#include <cstring>

#include "kernels/transfer.h"

namespace farandole::trainer {

StagedCopies::Stage::Stage(Device& device)
    : copied(device.make_event(DeviceEvent::Use::kStreams)),
      read(device.make_event(DeviceEvent::Use::kStreams)),
      pinned(device) {}

StagedCopies::StagedCopies(const Execution& execution, StreamView copies)
    : execution_(execution), device_(device_of(execution)), copies_(copies) {
  for (auto& stage : stages_) stage = std::make_unique<Stage>(device_);
}

bool StagedCopies::Stage::has_room_for(const BatchParts& batch) const {
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    if (batch[i].size() > parts[i].count()) return false;
  }
  return bytes_of(batch) <= pinned.size();
}

bool StagedCopies::has_room_for(const BatchParts& batch) const {
  return std::ranges::all_of(stages_, [&](const auto& stage) { return stage->has_room_for(batch); });
}

void StagedCopies::reserve(const BatchParts& batch) {
  if (has_room_for(batch)) return;
  for (auto& stage : stages_) grow(*stage, batch);
}

void StagedCopies::grow(Stage& stage, const BatchParts& batch) const {
  stage.pinned.memory();  // waits until no copy writes to the parts
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    Buffer& part = stage.parts[i];
    if (part.count() >= batch[i].size()) continue;
    part = Buffer();
    part = allocate(execution_.memory(), batch[i].size(), DType::kU8);
  }
  stage.pinned.reserve(bytes_of(batch));
}

void StagedCopies::send(const BatchParts& batch) {
  last_ = (last_ + 1) % stages_.size();
  Stage& stage = *stages_[last_];
  std::byte* pinned = stage.pinned.memory();
  if (stage.was_read) device_.wait(copies_, *stage.read);
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    const std::size_t bytes = batch[i].size();
    stage.sent_bytes[i] = bytes;
    if (bytes == 0) continue;
    std::memcpy(pinned, batch[i].data(), bytes);
    stage.pinned.send(stage.parts[i].view().data, pinned, bytes, copies_);
    pinned += bytes;
  }
  device_.record(*stage.copied, copies_);
}

void StagedCopies::receive(const BatchAddresses& to) {
  Stage& stage = *stages_[last_];
  device_.wait(execution_.stream(), *stage.copied);
  for (std::size_t i = 0; i < kBatchParts; ++i) {
    if (stage.sent_bytes[i] == 0) continue;
    device_.copy(to[i], stage.parts[i].view().data, stage.sent_bytes[i], execution_.stream());
  }
  device_.record(*stage.read, execution_.stream());
  stage.was_read = true;
}

}  // namespace farandole::trainer
