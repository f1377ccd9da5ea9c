// SPDX-License-Identifier: Apache-2.0
#include "fake_streams.h"

#include <chrono>
#include <thread>
#include <utility>

#include "fake_device.h"
#include "fake_devices.h"
#include "fake_faults.h"
#include "fake_waiting.h"

namespace farandole::fake {

void keep(std::shared_ptr<const Handle> handle) {
  static auto* const mutex = new std::mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const Handle>>;  // what streams use until the process ends
  const std::lock_guard guard(*mutex);
  kept->push_back(std::move(handle));
}

void Mark::reach() {
  time_ = std::chrono::steady_clock::now();
  reached_.store(1, std::memory_order_release);
  wake_sleepers(reached_);
}

bool Mark::is_reached() const {
  if (reached_.load(std::memory_order_relaxed) == 0) return false;
  return reached_.load(std::memory_order_acquire) != 0;
}

void Mark::wait() const {
  while (!is_reached()) sleep_while(reached_, 0);
}

Stream::Stream(Device& owner, unsigned serial_in_device, bool waits_for_legacy)
    : Handle(Kind::kStream),
      device(owner),
      serial(serial_in_device),
      is_blocking(waits_for_legacy),
      last_(new Block),
      first_(last_),
      random_(random_of(owner.physical, serial_in_device)) {
  std::thread([this] { run(); }).detach();
}

void Stream::push(Item item) {
  const std::uint32_t group_thread = group_thread_.load(std::memory_order_relaxed);
  if (group_thread != 0 && group_thread != this_thread_number()) {
    misuse("{} on stream {} of device {} while another thread enqueues an NCCL group on it", item.call, serial,
           device.ordinal);
  }
  item.uses.begin();
  const std::lock_guard guard(push_mutex_);
  const std::uint32_t number = pushed_.load(std::memory_order_relaxed);
  if (number != 0 && number % kBlockItems == 0) {
    last_->next = new Block;
    last_ = last_->next;
  }
  last_->items[number % kBlockItems] = std::move(item);
  pushed_.store(number + 1, std::memory_order_release);
  wake_sleepers(pushed_);
}

bool Stream::is_idle() const {
  const std::uint32_t pushed = this->pushed();
  if (completed_.load(std::memory_order_relaxed) != pushed) return false;
  return completed_.load(std::memory_order_acquire) == pushed;
}

void Stream::wait(std::uint32_t items) const {
  for (;;) {
    const std::uint32_t completed = completed_.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(completed - items) >= 0) break;
    sleep_while(completed_, completed);
  }
  (void)completed_.load(std::memory_order_acquire);
}

void Stream::begin_group() {
  std::uint32_t other = 0;
  const std::uint32_t self = this_thread_number();
  if (!group_thread_.compare_exchange_strong(other, self, std::memory_order_relaxed) && other != self) {
    misuse("two threads enqueue NCCL groups on stream {} of device {} at the same time", serial, device.ordinal);
  }
}

void Stream::run() {
  for (std::uint32_t number = 0;; ++number) {
    while (pushed_.load(std::memory_order_relaxed) == number) sleep_while(pushed_, number);
    (void)pushed_.load(std::memory_order_acquire);
    if (number != 0 && number % kBlockItems == 0) delete std::exchange(first_, first_->next);
    Item& item = first_->items[number % kBlockItems];
    hang_if_stuck(number + 1);
    pause_at_random();
    run_item(item, number + 1);
    item = {};
    completed_.store(number + 1, std::memory_order_release);
    wake_sleepers(completed_);
  }
}

void Stream::run_item(Item& item, std::uint32_t number) {
  for (const Position& position : item.after) position.stream->wait(position.items);
  if (item.wait_for != nullptr) item.wait_for->wait();
  const Allocation* const freed = item.uses.freed();
  if (freed != nullptr) {
    misuse("item {} of stream {} of device {}, {}, uses {}, which was freed meanwhile", number, serial, device.ordinal,
           item.call, text_of(*freed));
  }
  const bool can_be_done = freed == nullptr && !is_device_lost();
  if (can_be_done && item.work) item.work(random_);
  if (!can_be_done && item.skipped) item.skipped();
  item.uses.finish();
  if (item.reach != nullptr) item.reach->reach();
}

// Pauses the stream, so that streams that do not wait for it overtake it.
void Stream::pause_at_random() {
  const auto longest = static_cast<std::uint64_t>(option(Option::kDelayMicroseconds));
  switch (random_.below(8)) {
    case 0:
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(longest + 1)));
      break;
    case 1:
    case 2:
      for (std::uint64_t yields = random_.below(8); yields > 0; --yields) std::this_thread::yield();
      break;
    default:
      break;
  }
}

void Stream::stick(std::uint32_t nth) {
  stuck_epoch_.store(restorations(), std::memory_order_relaxed);
  stuck_item_.store(pushed() + nth, std::memory_order_relaxed);
}

void Stream::hang_if_stuck(std::uint32_t number) const {
  std::uint32_t epoch = restorations();
  if (stuck_item_.load(std::memory_order_relaxed) == number) {
    epoch = stuck_epoch_.load(std::memory_order_relaxed);
  } else if (!is_item_stuck()) {
    return;
  }
  while (restorations() == epoch) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Event::record(const std::function<void(Mark*)>& enqueue) {
  const std::lock_guard guard(mutex_);
  Mark* const mark = &marks_.emplace_back();
  enqueue(mark);
  last_.store(mark, std::memory_order_release);
  captured_.store(nullptr, std::memory_order_release);
}

void Event::record(CapturedRecord record) {
  const std::lock_guard guard(mutex_);
  captured_.store(&records_.emplace_back(std::move(record)), std::memory_order_release);
}

std::uint32_t this_thread_number() {
  static std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

}  // namespace farandole::fake

extern "C" void fake_device_stick(void* stream, unsigned nth) {
  using farandole::fake::Stream;
  Stream& stuck =
      stream == nullptr ? farandole::fake::current_device()->legacy_stream() : *static_cast<Stream*>(stream);
  stuck.stick(nth);
}
