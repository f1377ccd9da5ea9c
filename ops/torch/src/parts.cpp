// SPDX-License-Identifier: Apache-2.0
// The collectives in which each rank has a part of the tensors: gathers, scatters and alltoall.
#include <c10/util/StringUtil.h>

#include <utility>

#include "call_start.h"

namespace farandole_torch {
namespace {

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

}  // namespace

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
  start.divide_at_end(whole, list);
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
  const auto type = inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::COALESCED;
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
    start.divide_at_end(whole, list);
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
  if (is_root) {
    list = outputs.front();
    need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), list.size());
    need_same_type(kWhat, input, list.front());
    whole = joined(list, /*copies=*/false, kWhat);
    for (const size_t count : counts_of(list)) need_size(kWhat, "elements in each output", from.count, count);
  }
  Start start(*this, mode_of(options), c10d::OpType::GATHER, "farandole:gather", inputs, list);
  if (is_root) start.divide_at_end(whole, list);
  call(farandole_gather, start.comm(), from.data, from.count, is_root ? elements_of(whole, kWhat).data : nullptr,
       nullptr, from.dtype, static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                                    const c10d::GatherOptions& options) {
  constexpr const char* kWhat = "gather_into_tensor";
  need_root(kWhat, options.rootRank, size_);
  const bool is_root = options.rootRank == rank_;
  const Elements from = elements_of(input, kWhat);
  Tensors outputs;
  Elements to;
  if (is_root) {
    need_same_type(kWhat, input, output);
    to = elements_of(output, kWhat);
    need_size(kWhat, "elements of the output", from.count * static_cast<size_t>(size_), to.count);
    outputs.push_back(output);
  }
  Start start(*this, mode_of(options), c10d::OpType::GATHER, "farandole:gather", {input}, outputs);
  call(farandole_gather, start.comm(), from.data, from.count, to.data, nullptr, from.dtype,
       static_cast<int32_t>(options.rootRank), start.options(), start.handle());
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
  const auto type = inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::COALESCED;
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
  start.divide_at_end(to, outputs);
  const Elements source = elements_of(from, kWhat);
  call(farandole_alltoall, start.comm(), source.data, elements_of(to, kWhat).data, size_t{0}, sent.data(),
       received.data(), source.dtype, start.options(), start.handle());
  return start.launch();
}

}  // namespace farandole_torch
