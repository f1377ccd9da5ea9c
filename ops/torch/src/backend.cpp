// SPDX-License-Identifier: Apache-2.0
#include "backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <utility>

#include "call_start.h"
#include "process_end.h"

namespace farandole_torch {
namespace {

c10::intrusive_ptr<c10d::Backend::Options> make_options(const GroupPlan& plan) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("farandole", plan.timeout);
  options->group_name = plan.name;
  options->global_ranks_in_group.assign(plan.global_ranks.begin(), plan.global_ranks.end());
  return options;
}

}  // namespace

FarandoleBackend::FarandoleBackend(const GroupPlan& plan)
    : Backend(plan.rank, plan.size),
      options_(make_options(plan)),
      store_(plan.store),
      is_whole_job_(is_whole_job(plan)),
      job_(Job::join(plan)),
      comm_(job_->make_comm(plan)) {}

FarandoleBackend::~FarandoleBackend() {
  // Python destroys the object with its lock held, and callbacks of pending calls may need the lock.
  if (PyGILState_Check() != 0) {
    const pybind11::gil_scoped_release no_gil;
    end(/*failure=*/{});
  } else {
    end(/*failure=*/{});
  }
}

void FarandoleBackend::shutdown() {
  end(failure_in_progress());
}

void FarandoleBackend::end(const std::string& failure) {
  // Without the mutex, which a blocking call of another thread may hold until the job has failed.
  if (!failure.empty() && is_whole_job_) Job::abort(failure);
  Comm last;
  std::shared_ptr<Job> job;
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  collect_for({});
  last = std::move(comm_);
  job = std::move(job_);
  if (process_end_has_begun()) return keep_until_exit(std::move(last), std::move(job));
  if (!failure.empty()) return job->keep(std::move(last));
  last.reset();  // before the job
}

void FarandoleBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  wait_timeout_ = timeout;
  options_->timeout = timeout;
}

c10::Stream FarandoleBackend::stream_on(at::Device device, const StreamUse& use) {
  for (const auto& [existing_use, stream] : streams_) {
    if (stream.device() == device && existing_use.kind == use.kind && existing_use.peer == use.peer) return stream;
  }
  return streams_.emplace_back(GroupStream{use, make_stream(device)}).stream;
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

FarandoleBackend::Block FarandoleBackend::collect_for(std::thread::id thread) {
  const std::lock_guard lock(coalescing_mutex_);
  coalescing_thread_ = thread;
  return std::exchange(block_, {});
}

void FarandoleBackend::startCoalescing() {
  if (const std::size_t lost = collect_for({}).messages.size(); lost > 0) {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                c10::str("an earlier batch of this process group was left by an exception, and its ", lost,
                         " messages of tensors on devices were not sent; peers may wait for them: end the job, or call "
                         "destroy_process_group on all ranks"));
  }
  collect_for(std::this_thread::get_id());
}

bool FarandoleBackend::supportsCoalescing() const {
  return at::hasCUDA() || extension_has_cuda_memory;
}

void FarandoleBackend::collect(const c10::intrusive_ptr<CallWork>& work) {
  if (coalescing_thread_ != std::this_thread::get_id()) return;
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_thread_ == std::this_thread::get_id()) block_.works.push_back(work);
}

bool FarandoleBackend::defer(const Staged& staged, const farandole_message& message) {
  if (coalescing_thread_ != std::this_thread::get_id()) return false;
  const std::lock_guard lock(coalescing_mutex_);
  if (coalescing_thread_ != std::this_thread::get_id()) return false;
  block_.messages.push_back({staged, message});
  return true;
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::endCoalescing() {
  if (coalescing_thread_ != std::this_thread::get_id()) {
    throw_error(FARANDOLE_INVALID_ARGUMENT, "endCoalescing: this thread has not called startCoalescing");
  }
  Block block = collect_for({});
  while (!block.messages.empty()) {
    // The messages of one device at a time.
    const auto others = std::stable_partition(block.messages.begin(), block.messages.end(),
                                              [device = block.messages.front().staged.tensor.device()](
                                                  const auto& each) { return each.staged.tensor.device() == device; });
    block.works.push_back(exchange({block.messages.begin(), others}));
    block.messages.erase(block.messages.begin(), others);
  }
  return c10::make_intrusive<WorkList>(rank_, std::move(block.works));
}

at::Tensor FarandoleBackend::allocateTensor(long size, at::TensorOptions options) {
  const at::ScalarType type = options.dtype().toScalarType();
  if (c10::isComplexType(type)) return allocateTensor(2 * size, options.dtype(c10::toRealValueType(type)));
  void* const window = farandole_window_allocate(static_cast<size_t>(size) * options.dtype().itemsize());
  if (window == nullptr) return at::empty({size}, options);
  return at::from_blob(
      window, {size}, [](void* memory) { farandole_window_free(memory); }, options);
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  constexpr const char* kWhat = "broadcast";
  need_root(kWhat, options.rootRank, size_);
  const Staged staged = stage(only(tensors, kWhat), options.rootRank == rank_ ? Use::kInput : Use::kOutput, kWhat);
  const Elements& values = staged.elements;
  Start start(*this, mode_of(options), c10d::OpType::BROADCAST, "farandole:broadcast", tensors, tensors);
  start.use(staged);
  call(farandole_broadcast, start.comm(), values.data, values.count, values.dtype,
       static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  constexpr const char* kWhat = "all_reduce";
  at::Tensor& tensor = only(tensors, kWhat);
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  const Staged staged = stage(tensor, Use::kInPlace, kWhat);
  const Elements& values = staged.elements;
  const Reduction reduction = reduction_of(options.reduceOp, tensor, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::ALLREDUCE, "farandole:all_reduce", tensors, tensors);
  start.use(staged);
  call(farandole_allreduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
       start.options(reduction.prescale), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::allreduce_coalesced(Tensors& tensors,
                                                                     const c10d::AllreduceCoalescedOptions& options) {
  constexpr const char* kWhat = "all_reduce_coalesced";
  std::vector<std::pair<Staged, Reduction>> all;
  for (const at::Tensor& tensor : tensors) {
    all.emplace_back(stage(tensor, Use::kInPlace, kWhat), reduction_of(options.reduceOp, tensor, kWhat));
  }
  Start start(*this, mode_of(options), c10d::OpType::ALLREDUCE_COALESCED, "farandole:all_reduce_coalesced", tensors,
              tensors);
  for (const auto& [staged, reduction] : all) {
    const Elements& values = staged.elements;
    start.use(staged);
    call(farandole_allreduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
         start.options(reduction.prescale), start.handle());
  }
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  constexpr const char* kWhat = "reduce";
  at::Tensor& tensor = only(tensors, kWhat);
  need_root(kWhat, options.rootRank, size_);
  const Staged staged = stage(tensor, options.rootRank == rank_ ? Use::kInPlace : Use::kInput, kWhat);
  const Elements& values = staged.elements;
  const Reduction reduction = reduction_of(options.reduceOp, tensor, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::REDUCE, "farandole:reduce", tensors, tensors);
  start.use(staged);
  call(farandole_reduce, start.comm(), values.data, values.data, values.count, values.dtype, reduction.op,
       static_cast<int32_t>(options.rootRank), start.options(reduction.prescale), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::barrier(const c10d::BarrierOptions& options) {
  Start start(*this, mode_of(options), c10d::OpType::BARRIER, "farandole:barrier", {}, {});
  call(farandole_barrier, start.comm(), start.handle());
  return start.launch();
}

}  // namespace farandole_torch
