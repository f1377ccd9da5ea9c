// SPDX-License-Identifier: Apache-2.0
// Allgather, alltoall and reduce_scatter: collectives whose output shape depends on the other ranks' inputs.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "batch.h"
#include "farandole/internal/memory_range.h"

namespace farandole {
namespace {

std::size_t unsigned_of(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Checks that the rows that all ranks announce can fit in memory. @param rows  by rank   @param row_bytes  bytes of a
/// row
/// @throws TransportError  a number is negative, or the rows take more than kMaxTensorBytes
void check_rows(const std::vector<std::int64_t>& rows, std::size_t row_bytes, const RequestSpec& spec) {
  std::int64_t remaining = kMaxTensorBytes / static_cast<std::int64_t>(std::max<std::size_t>(row_bytes, 1));
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank] < 0 || rows[rank] > remaining) {
      throw TransportError(fmt::format("{}: rank {} of its process set announces {} rows of {} bytes", describe(spec),
                                       rank, rows[rank], row_bytes));
    }
    remaining -= rows[rank];
  }
}

/// Each tensor goes through three stages: the ranks exchange their numbers of rows, the caller allocates the output,
/// then the data moves. The exchanges of all tensors start together; the data of the tensors moves in order, because
/// all ranks must start collectives in the same order.
class NewShapeBatch final : public Batch {
 public:
  NewShapeBatch(BatchContext& context, BatchEntry entry)
      : context_(context), entry_(std::move(entry)), agreed_at_(context.timeline.now()), is_direct_(context.is_direct) {
    for (LocalTensor& tensor : entry_.local->tensors) items_.emplace_back().tensor = &tensor;
  }

  bool start() override {
    if (!lengths_started_) {
      for (Item& item : items_) ask_lengths(item);
      lengths_started_ = true;
    }
    for (; started_ < items_.size(); ++started_) {
      Item& item = items_[started_];
      if (item.lengths.valid()) {
        if (!item.lengths.test()) return false;
        item.lengths.wait();
        item.lengths = Work();
      }
      if (!item.memory) ask_memory(item);
      if (!item.memory->is_resolved()) return false;
      begin(item);
    }
    return true;
  }

  bool finish(std::vector<Completion>& completions) override {
    for (; finished_ < started_; ++finished_) {
      Item& item = items_[finished_];
      if (item.work.valid()) {
        if (!item.work.test()) return false;
        item.work.wait();
      }
      if (!item.tensor->space.is_host()) {
        item.completed = context_.device.record();
        context_.device.finish(*item.tensor, *item.completed);
      }
      if (context_.timeline.is_on()) record(item);
      completions.push_back(completion_of(item, item.error));
    }
    return finished_ == items_.size();
  }

  void fail(const RequestError& error, std::vector<Completion>& completions) override {
    for (; finished_ < items_.size(); ++finished_) {
      Item& item = items_[finished_];
      auto completion = completion_of(item, error);
      if (item.memory) {
        if (auto due = item.memory->cancel(std::move(completion))) completions.push_back(std::move(*due));
      } else {
        completions.push_back(std::move(completion));
      }
    }
  }

 private:
  struct Item {
    LocalTensor* tensor = nullptr;
    // Allgather: rows of this rank, and of each rank. Alltoall: rows for each rank, and from each rank. Reduce_scatter:
    // unused, and rows of the result for each rank.
    std::vector<std::int64_t> rows_sent, rows_received;
    std::vector<std::size_t> sent_counts, received_counts;
    Work lengths;  // exchange of the numbers of rows; not valid once the exchange has ended
    std::vector<std::int64_t> shape;
    std::size_t output_count = 0;
    std::shared_ptr<OutputMemory> memory;  // null: not requested yet
    Buffer substitute;  // output if the caller's is unusable: the peers still need this rank in the collective
    std::optional<RequestError> error;
    Work work;                               // not valid if the collective was enqueued directly on the device
    std::shared_ptr<DeviceEvent> completed;  // device memory: complete after the collective
    Timeline::Time asked{}, began{};         // set only if the timeline is on
  };

  RequestKind kind() const { return entry_.spec->kind; }
  int size() const { return context_.communicator.size(); }

  void ask_lengths(Item& item) {
    const LocalTensor& tensor = *item.tensor;
    const std::size_t ranks = unsigned_of(size());
    item.rows_received.resize(ranks);
    if (kind() == RequestKind::kAllgather) {
      item.rows_sent = {tensor.rows()};
      item.lengths = context_.communicator.allgather_async(item.rows_sent, item.rows_received);
    } else if (kind() == RequestKind::kAlltoall) {
      item.rows_sent = tensor.splits;
      if (item.rows_sent.empty()) item.rows_sent.assign(ranks, tensor.rows() / size());
      item.lengths = context_.communicator.alltoall_async(item.rows_sent, item.rows_received);
    } else {
      for (int rank = 0; rank < size(); ++rank)
        item.rows_received[unsigned_of(rank)] = rows_of(tensor.rows(), rank, size());
    }
  }

  void ask_memory(Item& item) {
    const LocalTensor& tensor = *item.tensor;
    const std::size_t row = tensor.row_count();
    check_rows(item.rows_received, row * size_in_bytes(tensor.dtype), *entry_.spec);
    for (const std::int64_t rows : item.rows_received) item.received_counts.push_back(unsigned_of(rows) * row);
    item.output_count = std::accumulate(item.received_counts.begin(), item.received_counts.end(), std::size_t{0});
    std::int64_t rows = std::accumulate(item.rows_received.begin(), item.rows_received.end(), std::int64_t{0});
    if (kind() == RequestKind::kReduceScatter) {
      rows = item.rows_received[unsigned_of(context_.communicator.rank())];
      item.output_count = unsigned_of(rows) * row;
    }
    item.shape = tensor.shape;
    item.shape.front() = rows;
    item.asked = context_.timeline.now();
    item.memory = std::make_shared<OutputMemory>(tensor, item.shape);
    context_.requested_memory.push_back(item.memory);
  }

  void begin(Item& item) {
    LocalTensor& tensor = *item.tensor;
    take_memory(item);
    item.began = context_.timeline.now();
    const std::size_t row = tensor.row_count();
    const ConstBufferView input(tensor.input, tensor.count(), tensor.dtype, tensor.space);
    const BufferView output(tensor.output, item.output_count, tensor.dtype, tensor.space);
    CallOptions options;
    if (!tensor.space.is_host()) {
      DeviceLane& lane = context_.device;
      lane.begin(is_direct_);
      lane.count_collective();
      lane.wait_for_input(tensor);
      lane.wait_for_stream(tensor);  // earlier work of the program may still use the output's memory
      options.stream = lane.stream();
    }
    start_collective(item, input, output, row, options);
  }

  void start_collective(Item& item, ConstBufferView input, BufferView output, std::size_t row, CallOptions options) {
    ++context_.counters.collectives;
    Communicator& communicator = context_.communicator;
    // On a device pass no counts if all parts are equal, because NCCL's own collectives move only equal parts.
    std::span<const std::size_t> counts = item.received_counts;
    const bool are_equal =
        std::all_of(counts.begin(), counts.end(), [&](std::size_t each) { return each == counts[0]; });
    if (are_equal && !input.space.is_host()) counts = {};
    if (kind() == RequestKind::kAllgather) {
      item.work = communicator.allgather_async(input, output, counts, options);
    } else if (kind() == RequestKind::kAlltoall) {
      for (const std::int64_t rows : item.rows_sent) item.sent_counts.push_back(unsigned_of(rows) * row);
      item.work = communicator.alltoall_async(input, output, item.sent_counts, item.received_counts, options);
    } else {
      context_.counters.reduced_bytes += input.size_in_bytes();
      const RequestSpec& spec = *entry_.spec;
      options.prescale = spec.prescale;
      options.postscale = spec.postscale;
      item.work = communicator.reduce_scatter_async(input, output, spec.op, counts, options);
    }
  }

  void take_memory(Item& item) {
    LocalTensor& tensor = *item.tensor;
    const std::size_t count = item.output_count;
    tensor.output = item.memory->data();
    if (count == 0) return;
    const std::size_t bytes = count * size_in_bytes(tensor.dtype);
    const MemoryRange input(tensor.input, tensor.count() * size_in_bytes(tensor.dtype));
    const MemoryRange output(tensor.output, bytes);
    std::string error;
    if (tensor.output == nullptr) {
      error = fmt::format("the caller has no memory for an output of {} bytes", bytes);
    } else if (overlap(input, output)) {
      error = fmt::format("the output {} from `allocate` overlaps the input {}; it must be apart from it",
                          describe(output), describe(input));
    } else {
      error = misplaced_output(tensor, count);
      if (error.empty()) return;
    }
    item.substitute = context_.communicator.allocate(count, tensor.dtype, tensor.space);
    tensor.output = item.substitute.view().data;
    item.error = RequestError{ErrorKind::kInvalidArgument, fmt::format("{}: {}", describe(*entry_.spec), error)};
  }

  /// Returns why the device cannot use the output from `allocate`; empty if it can.
  std::string misplaced_output(const LocalTensor& tensor, std::size_t count) {
    if (tensor.space.is_host()) return {};
    context_.device.begin(is_direct_);
    return context_.device.address_problem("output from `allocate`",
                                           {tensor.output, count, tensor.dtype, tensor.space});
  }

  void record(const Item& item) {
    const auto now = Clock::now();
    const std::string& name = entry_.spec->name;
    context_.timeline.span(name, "WAIT_FOR_DATA", agreed_at_, item.asked);
    context_.timeline.span(name, "ALLOCATE_OUTPUT", item.asked, item.began);
    context_.timeline.span(name, collective_activity_of(*entry_.spec), item.began, now);
    if (&item == &items_.back()) context_.timeline.end(name, now);
  }

  Completion completion_of(Item& item, std::optional<RequestError> error) const {
    std::vector<std::int64_t> splits;
    if (kind() == RequestKind::kAlltoall) splits = item.rows_received;
    auto completed = error ? nullptr : item.completed;
    return {std::move(*item.tensor), std::move(error), item.shape, std::move(splits), std::move(completed)};
  }

  BatchContext& context_;
  BatchEntry entry_;
  const Timeline::Time agreed_at_;
  const bool is_direct_;
  std::vector<Item> items_;
  bool lengths_started_ = false;
  std::size_t started_ = 0, finished_ = 0;
};

}  // namespace

std::int64_t rows_of(std::int64_t rows, int rank, int size) {
  return rows / size + (rank < rows % size ? 1 : 0);
}

std::unique_ptr<Batch> make_new_shape_batch(BatchContext& context, BatchEntry entry) {
  return std::make_unique<NewShapeBatch>(context, std::move(entry));
}

}  // namespace farandole
