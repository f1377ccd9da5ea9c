// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>

#include <numeric>
#include <utility>

#include "device_stream.h"
#include "errors.h"

namespace farandole_torch {
namespace {

c10::intrusive_ptr<c10d::Backend::Options> make_options(const GroupPlan& plan) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("farandole", plan.timeout);
  options->group_name = plan.name;
  options->global_ranks_in_group.assign(plan.global_ranks.begin(), plan.global_ranks.end());
  return options;
}

void need_size(const char* what, const char* which, size_t expected, size_t found) {
  if (expected == found) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": expected ", expected, " ", which, ", got ", found));
}

void need_root(const char* what, int64_t root, int size) {
  if (root >= 0 && root < size) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": the root is ", root, "; expected 0 to ", size - 1));
}

void need_same_type(const char* what, const at::Tensor& input, const at::Tensor& output) {
  if (input.scalar_type() == output.scalar_type() && input.device() == output.device()) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": the input is ", input.scalar_type(), " on ", input.device(),
                                                   ", the output ", output.scalar_type(), " on ", output.device()));
}

/// The parts of a tensor's first dimension that belong to the ranks, in Farandole's elements.
std::vector<size_t> counts_of_rows(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks,
                                   const char* what) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.empty()) {
    if (rows % ranks != 0) {
      throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(what, ": ", rows, " rows cannot be divided among ", ranks,
                                                       " ranks; pass the number of rows for each rank"));
    }
    const size_t each = static_cast<size_t>(tensor.numel() / ranks) * elements_per_number(tensor);
    return std::vector<size_t>(static_cast<size_t>(ranks), each);
  }
  need_size(what, "numbers of rows", static_cast<size_t>(ranks), sizes.size());
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  int64_t sum = 0;
  std::vector<size_t> counts;
  for (const int64_t size : sizes) {
    sum += size;
    counts.push_back(static_cast<size_t>(size * row) * elements_per_number(tensor));
  }
  if (sum != rows) {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                c10::str(what, ": the numbers of rows add up to ", sum, ", and the tensor has ", rows));
  }
  return counts;
}

/// Joins all ranks' rows in the order of ranks. @param rows  numbers of rows by rank
at::Tensor gather_rows(farandole_comm* comm, const at::Tensor& own, const std::vector<int64_t>& rows,
                       const char* what) {
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = 1;
  const auto row = static_cast<size_t>(c10::multiply_integers(shape)) * elements_per_number(own);
  shape[0] = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const at::Tensor all = at::empty(shape, own.options());
  std::vector<size_t> counts;
  for (const int64_t of_rank : rows) counts.push_back(static_cast<size_t>(of_rank) * row);
  const Elements from = elements_of(own, what);
  call(farandole_allgather, comm, from.data, from.count, elements_of(all, what).data, counts.data(), from.dtype,
       nullptr, nullptr);
  return all;
}

/// The device of all tensors; the CPU if there are none. @throws InvalidArgument  they lie on several
at::Device common_device(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                         const char* title) {
  std::optional<at::Device> device;
  for (const auto* const list : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *list) {
      if (!device) device = tensor.device();
      if (tensor.device() == *device) continue;
      throw_error(FARANDOLE_INVALID_ARGUMENT,
                  c10::str(title, ": all tensors of a call lie on one device, but one is on ", *device, ", one on ",
                           tensor.device()));
    }
  }
  return device.value_or(at::kCPU);
}

/// @throws Unsupported  the tensor is on a device
void need_host(const at::Tensor& tensor, const char* what) {
  if (tensor.is_cpu()) return;
  throw_error(FARANDOLE_UNSUPPORTED, c10::str(what,
                                              ": Farandole has no messages between devices yet; send a copy, "
                                              "tensor.cpu(), or give the devices another backend: "
                                              "init_process_group(\"cpu:farandole,cuda:nccl\")"));
}

/// How a call runs.
struct Mode {
  bool is_async = true;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;  // of waits for the call
};

template <class Options>
Mode mode_of(const Options& options) {
  return {options.asyncOp, options.timeout};
}

}  // namespace

/// One call of torch: makes the Work, and runs calls of Farandole for it. Holds the mutex.
class FarandoleBackend::Start {
 public:
  Start(FarandoleBackend& backend, const Mode& mode, c10d::OpType type, const char* title, const Tensors& inputs,
        const Tensors& outputs)
      : lock_(backend.mutex_), comm_(backend.comm()) {
    const at::Device device = common_device(inputs, outputs, title);
    std::optional<c10::Stream> stream;
    if (!device.is_cpu()) {
      stream = backend.stream_on(device);
      order(current_stream(device), *stream);
    }
    const auto timeout = mode.timeout > kNoTimeout ? mode.timeout : backend.wait_timeout_;
    has_handles_ = device.is_cpu() && (mode.is_async || timeout > kNoTimeout);
    work_ = c10::make_intrusive<CallWork>(backend.rank_, type, title, inputs, outputs, ++backend.sequence_, timeout,
                                          stream);
    fill_options(stream);
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  /// If a call has failed to start, earlier calls of the same Work go on.
  ~Start() {
    if (lock_.owns_lock()) work_->launch();
  }

  farandole_comm* comm() const { return comm_; }
  CallWork& work() { return *work_; }
  /// The parameter `options` of the next call; null if there are none.
  const farandole_call_options* options(double prescale = 1.0) {
    options_.prescale = prescale;
    options_.has_factors = prescale == 1.0 ? 0 : 1;
    return options_.has_factors != 0 || options_.memory != FARANDOLE_HOST_MEMORY ? &options_ : nullptr;
  }
  /// The parameter `work` of the next call: null if the call blocks, or until it is enqueued on a device.
  farandole_work** handle() { return has_handles_ ? work_->add_call() : nullptr; }
  WorkPointer launch() {
    lock_.unlock();  // callbacks may start further calls
    work_->launch();
    return work_;
  }

 private:
  void fill_options(const std::optional<c10::Stream>& stream) {
    options_.struct_bytes = sizeof options_;
    options_.postscale = 1.0;
    if (!stream) return;
    options_.memory = FARANDOLE_CUDA_MEMORY;
    options_.device = stream->device_index();
    options_.stream = stream->native_handle();
    options_.has_stream = 1;
  }

  std::unique_lock<std::mutex> lock_;
  farandole_comm* const comm_;
  farandole_call_options options_{};
  bool has_handles_ = false;
  c10::intrusive_ptr<CallWork> work_;
};

FarandoleBackend::FarandoleBackend(const GroupPlan& plan)
    : Backend(plan.rank, plan.size),
      options_(make_options(plan)),
      job_(Job::join(plan)),
      comm_(job_->make_comm(plan)) {}

FarandoleBackend::~FarandoleBackend() {
  // Python destroys the object with its lock held, and callbacks of pending calls may need the lock.
  if (PyGILState_Check() != 0) {
    const pybind11::gil_scoped_release no_gil;
    shutdown();
  } else {
    shutdown();
  }
}

void FarandoleBackend::shutdown() {
  Comm last;
  std::shared_ptr<Job> job;
  const std::lock_guard lock(mutex_);
  last = std::move(comm_);
  job = std::move(job_);
  last.reset();  // before the job
}

void FarandoleBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  wait_timeout_ = timeout;
  options_->timeout = timeout;
}

c10::Stream FarandoleBackend::stream_on(at::Device device) {
  for (const c10::Stream& stream : streams_) {
    if (stream.device() == device) return stream;
  }
  return streams_.emplace_back(make_stream(device));
}

void FarandoleBackend::abort() {
  farandole_comm_abort(comm_.get(), "torch aborted the process group");
}

farandole_comm* FarandoleBackend::comm() const {
  if (comm_ == nullptr) throw_error(FARANDOLE_INVALID_ARGUMENT, "this process group has been shut down");
  return comm_.get();
}

std::string FarandoleBackend::describe(int rank) const {
  std::string text(512, '\0');
  call(farandole_comm_describe, comm(), rank, text.data(), text.size());
  text.resize(text.find('\0'));
  return text;
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr const char* kWhat = "broadcast";
  at::Tensor& tensor = only(tensors, kWhat);
  need_root(kWhat, options.rootRank, size_);
  const Elements values = elements_of(tensor, kWhat, Use::kAny);
  Start start(*this, mode_of(options), c10d::OpType::BROADCAST, "farandole:broadcast", tensors, tensors);
  call(farandole_broadcast, start.comm(), values.data, values.count, values.dtype,
       static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kWhat = "all_reduce";
  at::Tensor& tensor = only(tensors, kWhat);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  const Elements values = elements_of(tensor, kWhat, Use::kAny);
  const Reduction reduction = reduction_of(options.reduceOp, tensor, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::ALLREDUCE, "farandole:all_reduce", tensors, tensors);
  call(farandole_allreduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
       start.options(reduction.prescale), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce_coalesced(Tensors& tensors,
                                                                     const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kWhat = "all_reduce_coalesced";
  std::vector<std::pair<Elements, Reduction>> all;
  for (const at::Tensor& tensor : tensors) {
    all.emplace_back(elements_of(tensor, kWhat, Use::kAny), reduction_of(options.reduceOp, tensor, kWhat));
  }
  Start start(*this, mode_of(options), c10d::OpType::ALLREDUCE_COALESCED, "farandole:all_reduce_coalesced", tensors,
              tensors);
  for (const auto& [values, reduction] : all) {
    call(farandole_allreduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
         start.options(reduction.prescale), start.handle());
  }
  return start.launch();
}

/// Gathers the indices and values of all ranks, and adds up the values of each index.
c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce_sparse(Tensors& tensors,
                                                                  const c10d::AllreduceOptions& options) {
  constexpr const char* kWhat = "all_reduce of a sparse tensor";
  at::Tensor& tensor = only(tensors, kWhat);
  if (options.reduceOp.op_ != c10d::ReduceOp::SUM || tensor.layout() != at::kSparse || !tensor.is_cpu()) {
    throw_error(FARANDOLE_INVALID_ARGUMENT, c10::str(kWhat, ": expected a sum of tensors in COO format on the CPU"));
  }
  const at::Tensor mine = tensor.coalesce();
  std::vector<int64_t> rows(static_cast<size_t>(size_));
  const int64_t own_rows = mine._values().size(0);
  Start start(*this, Mode{false}, c10d::OpType::_ALLREDUCE_SPARSE, "farandole:all_reduce", {}, {});
  call(farandole_allgather, start.comm(), &own_rows, size_t{1}, rows.data(), nullptr, FARANDOLE_I64, start.options(),
       start.handle());
  // A row for each value, so that the ranks' rows follow each other in memory.
  const at::Tensor indices = mine._indices().t().contiguous();
  const at::Tensor all_indices = gather_rows(start.comm(), indices, rows, kWhat);
  const at::Tensor all_values = gather_rows(start.comm(), mine._values().contiguous(), rows, kWhat);
  const at::NoGradGuard no_grad;
  tensor.copy_(at::sparse_coo_tensor(all_indices.t(), all_values, tensor.sizes(), tensor.options()).coalesce());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kWhat = "reduce";
  at::Tensor& tensor = only(tensors, kWhat);
  need_root(kWhat, options.rootRank, size_);
  const Elements values = elements_of(tensor, kWhat, Use::kAny);
  const Reduction reduction = reduction_of(options.reduceOp, tensor, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::REDUCE, "farandole:reduce", tensors, tensors);
  call(farandole_reduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
       static_cast<int32_t>(options.rootRank), start.options(reduction.prescale), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  constexpr const char* kWhat = "all_gather";
  at::Tensor& input = only(inputs, kWhat);
  need_size(kWhat, "lists of outputs", 1, outputs.size());
  Tensors& list = outputs.front();
  need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), list.size());
  need_same_type(kWhat, input, list.front());
  const Elements from = elements_of(input, kWhat);
  at::Tensor whole = joined(list, /*copies=*/false, kWhat);
  const std::vector<size_t> counts = counts_of(list);
  Start start(*this, mode_of(options), c10d::OpType::ALLGATHER, "farandole:all_gather", inputs, list);
  start.work().keep(whole);
  start.work().then([whole, list]() mutable { divide(whole, list); });
  call(farandole_allgather, start.comm(), from.data, from.count, elements_of(whole, kWhat).data, counts.data(),
       from.dtype, start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                 const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  constexpr const char* kWhat = "all_gather_into_tensor";
  need_size(kWhat, "outputs, one per input", inputs.size(), outputs.size());
  std::vector<std::pair<Elements, Elements>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    need_same_type(kWhat, inputs[i], outputs[i]);
    all.emplace_back(elements_of(inputs[i], kWhat), elements_of(outputs[i], kWhat));
    need_size(kWhat, "elements of the output", all.back().first.count * static_cast<size_t>(size_),
              all.back().second.count);
  }
  const auto type = inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
  Start start(*this, mode_of(options), type, "farandole:_all_gather_base", inputs, outputs);
  for (const auto& [from, to] : all) {
    call(farandole_allgather, start.comm(), from.data, from.count, to.data, nullptr, from.dtype, start.options(),
         start.handle());
  }
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                                     const c10d::AllgatherOptions& options) {
  constexpr const char* kWhat = "all_gather_coalesced";
  need_size(kWhat, "lists of outputs, one per rank", static_cast<size_t>(size_), outputs.size());
  Tensors all_outputs;
  for (const Tensors& list : outputs) {
    need_size(kWhat, "outputs of each rank", inputs.size(), list.size());
    all_outputs.insert(all_outputs.end(), list.begin(), list.end());
  }
  std::vector<std::tuple<Elements, at::Tensor, Tensors>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    need_same_type(kWhat, inputs[i], list.front());
    all.emplace_back(elements_of(inputs[i], kWhat), joined(list, /*copies=*/false, kWhat), list);
  }
  Start start(*this, mode_of(options), c10d::OpType::ALLGATHER_COALESCED, "farandole:all_gather_coalesced", inputs,
              all_outputs);
  for (auto& [from, whole, list] : all) {
    const std::vector<size_t> counts = counts_of(list);
    start.work().keep(whole);
    start.work().then([whole = whole, list = list]() mutable { divide(whole, list); });
    call(farandole_allgather, start.comm(), from.data, from.count, elements_of(whole, kWhat).data, counts.data(),
         from.dtype, start.options(), start.handle());
  }
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                        const c10d::GatherOptions& options) {
  constexpr const char* kWhat = "gather";
  at::Tensor& input = only(inputs, kWhat);
  need_root(kWhat, options.rootRank, size_);
  const bool is_root = options.rootRank == rank_;
  need_size(kWhat, "lists of outputs", is_root ? 1 : 0, outputs.size());
  const Elements from = elements_of(input, kWhat);
  Tensors list;
  at::Tensor whole;
  std::vector<size_t> counts(static_cast<size_t>(size_), from.count);
  if (is_root) {
    list = outputs.front();
    need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), list.size());
    need_same_type(kWhat, input, list.front());
    whole = joined(list, /*copies=*/false, kWhat);
    need_size(kWhat, "elements in each output", from.count, counts_of(list)[static_cast<size_t>(rank_)]);
  }
  Start start(*this, mode_of(options), c10d::OpType::GATHER, "farandole:gather", inputs, list);
  if (is_root) {
    start.work().keep(whole);
    start.work().then([whole, list]() mutable { divide(whole, list); });
  }
  call(farandole_gather, start.comm(), from.data, from.count, is_root ? elements_of(whole, kWhat).data : nullptr,
       nullptr, from.dtype, static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                         const c10d::ScatterOptions& options) {
  constexpr const char* kWhat = "scatter";
  at::Tensor& output = only(outputs, kWhat);
  need_root(kWhat, options.rootRank, size_);
  const bool is_root = options.rootRank == rank_;
  need_size(kWhat, "lists of inputs", is_root ? 1 : 0, inputs.size());
  const Elements to = elements_of(output, kWhat);
  Tensors list;
  at::Tensor whole;
  if (is_root) {
    list = inputs.front();
    need_size(kWhat, "inputs, one per rank", static_cast<size_t>(size_), list.size());
    need_same_type(kWhat, list.front(), output);
    for (const size_t count : counts_of(list)) need_size(kWhat, "elements in each input", to.count, count);
    whole = joined(list, /*copies=*/true, kWhat);
  }
  Start start(*this, mode_of(options), c10d::OpType::SCATTER, "farandole:scatter", list, outputs);
  if (is_root) start.work().keep(whole);
  call(farandole_scatter, start.comm(), is_root ? elements_of(whole, kWhat).data : nullptr, to.data, to.count, nullptr,
       to.dtype, static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  constexpr const char* kWhat = "reduce_scatter";
  at::Tensor& output = only(outputs, kWhat);
  need_size(kWhat, "lists of inputs", 1, inputs.size());
  Tensors& list = inputs.front();
  need_size(kWhat, "inputs, one per rank", static_cast<size_t>(size_), list.size());
  need_same_type(kWhat, list.front(), output);
  const Elements to = elements_of(output, kWhat);
  const std::vector<size_t> counts = counts_of(list);
  const Reduction reduction = reduction_of(options.reduceOp, output, kWhat);
  const at::Tensor whole = joined(list, /*copies=*/true, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::REDUCE_SCATTER, "farandole:reduce_scatter", list, outputs);
  start.work().keep(whole);
  call(farandole_reduce_scatter, start.comm(), elements_of(whole, kWhat).data, to.data, to.count, counts.data(),
       to.dtype, reduction.op, start.options(reduction.prescale), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                      const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kWhat = "reduce_scatter_tensor";
  need_size(kWhat, "outputs, one per input", inputs.size(), outputs.size());
  std::vector<std::tuple<Elements, Elements, Reduction>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    need_same_type(kWhat, inputs[i], outputs[i]);
    const Elements from = elements_of(inputs[i], kWhat);
    const Elements to = elements_of(outputs[i], kWhat);
    need_size(kWhat, "elements of the input", to.count * static_cast<size_t>(size_), from.count);
    all.emplace_back(from, to, reduction_of(options.reduceOp, inputs[i], kWhat));
  }
  const auto type =
      inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  Start start(*this, mode_of(options), type, "farandole:_reduce_scatter_base", inputs, outputs);
  for (const auto& [from, to, reduction] : all) {
    call(farandole_reduce_scatter, start.comm(), from.data, to.data, to.count, nullptr, to.dtype, reduction.op,
         start.options(reduction.prescale), start.handle());
  }
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                               std::vector<int64_t>& output_sizes,
                                                               std::vector<int64_t>& input_sizes,
                                                               const c10d::AllToAllOptions& options) {
  constexpr const char* kWhat = "all_to_all_single";
  need_same_type(kWhat, input, output);
  const Elements from = elements_of(input, kWhat);
  const Elements to = elements_of(output, kWhat);
  const std::vector<size_t> sent = counts_of_rows(input, input_sizes, size_, kWhat);
  const std::vector<size_t> received = counts_of_rows(output, output_sizes, size_, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::ALLTOALL_BASE, "farandole:all_to_all", {input}, {output});
  call(farandole_alltoall, start.comm(), from.data, to.data, size_t{0}, sent.data(), received.data(), from.dtype,
       start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& options) {
  constexpr const char* kWhat = "all_to_all";
  need_size(kWhat, "inputs, one per rank", static_cast<size_t>(size_), inputs.size());
  need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), outputs.size());
  need_same_type(kWhat, inputs.front(), outputs.front());
  const at::Tensor from = joined(inputs, /*copies=*/true, kWhat);
  at::Tensor to = joined(outputs, /*copies=*/false, kWhat);
  const std::vector<size_t> sent = counts_of(inputs);
  const std::vector<size_t> received = counts_of(outputs);
  Start start(*this, mode_of(options), c10d::OpType::ALLTOALL, "farandole:all_to_all", inputs, outputs);
  start.work().keep(from);
  start.work().keep(to);
  start.work().then([to, outputs]() mutable { divide(to, outputs); });
  const Elements source = elements_of(from, kWhat);
  call(farandole_alltoall, start.comm(), source.data, elements_of(to, kWhat).data, size_t{0}, sent.data(),
       received.data(), source.dtype, start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::barrier(const c10d::BarrierOptions& options) {
  Start start(*this, mode_of(options), c10d::OpType::BARRIER, "farandole:barrier", {}, {});
  call(farandole_barrier, start.comm(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::send(Tensors& tensors, int target, int tag) {
  constexpr const char* kWhat = "send";
  const Elements values = elements_of(only(tensors, kWhat), kWhat, Use::kAny);
  need_host(tensors.front(), kWhat);
  Start start(*this, Mode{}, c10d::OpType::SEND, "farandole:send", tensors, {});
  call(farandole_send, start.comm(), values.data, values.count, values.dtype, target, tag, start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::recv(Tensors& tensors, int source, int tag) {
  constexpr const char* kWhat = "recv";
  const Elements values = elements_of(only(tensors, kWhat), kWhat, Use::kAny);
  need_host(tensors.front(), kWhat);
  Start start(*this, Mode{}, c10d::OpType::RECV, "farandole:recv", tensors, tensors);
  call(farandole_recv, start.comm(), values.data, values.count, values.dtype, source, tag, nullptr, start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::recvAnysource(Tensors& tensors, int tag) {
  constexpr const char* kWhat = "recv";
  const Elements values = elements_of(only(tensors, kWhat), kWhat, Use::kAny);
  need_host(tensors.front(), kWhat);
  Start start(*this, Mode{}, c10d::OpType::RECVANYSOURCE, "farandole:recvAnySource", tensors, tensors);
  call(farandole_recv, start.comm(), values.data, values.count, values.dtype, FARANDOLE_ANY_SOURCE, tag, nullptr,
       start.handle());
  return start.launch();
}

}  // namespace farandole_torch
