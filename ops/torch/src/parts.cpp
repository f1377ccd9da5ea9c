// SPDX-License-Identifier: Apache-2.0
// The collectives in which each rank has a part of the tensors: gathers, scatters and alltoall.
#include <c10/util/StringUtil.h>

#include <utility>

#include "call_start.h"

namespace farandole_torch {
namespace {

/// The parts of a tensor's first dimension that belong to the ranks, in Farandole's elements.
/// @param sizes  rows of each part; empty: equal parts   @param side  "input" or "output"
std::vector<size_t> counts_of_rows(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks,
                                   const char* what, const char* side) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.empty()) {
    if (rows % ranks != 0) {
      throw_error(FARANDOLE_INVALID_ARGUMENT,
                  c10::str(what, ": the ", side, " has ", rows, " rows, which cannot be divided among ", ranks,
                           " ranks; pass ", side, "_split_sizes, the number of rows for each rank"));
    }
    const size_t each = static_cast<size_t>(tensor.numel() / ranks) * elements_per_number(tensor);
    return std::vector<size_t>(static_cast<size_t>(ranks), each);
  }
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  int64_t sum = 0;
  bool is_possible = static_cast<int>(sizes.size()) == ranks;
  std::vector<size_t> counts;
  for (const int64_t size : sizes) {
    sum += size;
    is_possible = is_possible && size >= 0;
    counts.push_back(static_cast<size_t>(size * row) * elements_per_number(tensor));
  }
  if (!is_possible || sum != rows) {
    throw_error(FARANDOLE_INVALID_ARGUMENT,
                c10::str(what, ": ", side, "_split_sizes is ", at::IntArrayRef(sizes), "; expected ", ranks,
                         " numbers, one for each rank, that add up to the ", rows, " rows of the ", side,
                         ", and not to ", sum));
  }
  return counts;
}

/// @throws InvalidArgument  this rank sends itself another number of elements than it receives from itself
void need_same_own_part(const std::vector<size_t>& sent, const std::vector<size_t>& received, int rank,
                        size_t elements_per_number, const char* what) {
  const auto own = static_cast<size_t>(rank);
  if (sent[own] == received[own]) return;
  throw_error(FARANDOLE_INVALID_ARGUMENT,
              c10::str(what, ": rank ", rank, " sends itself ", sent[own] / elements_per_number,
                       " elements (input_split_sizes[", rank, "]) and expects ", received[own] / elements_per_number,
                       " from itself (output_split_sizes[", rank,
                       "]); output_split_sizes[s] of rank r must be "
                       "input_split_sizes[r] of rank s"));
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
  const Staged staged = stage(input, Use::kInput, kWhat);
  const Elements& from = staged.elements;
  at::Tensor whole = joined(list, Use::kOutput, kWhat);
  const std::vector<size_t> counts = counts_of(list);
  Start start(*this, mode_of(options), c10d::OpType::ALLGATHER, "farandole:all_gather", inputs, list);
  start.use(staged);
  start.divide_at_end(whole, list);
  call(farandole_allgather, start.comm(), from.data, from.count, elements_of(whole).data, counts.data(), from.dtype,
       start.options(), start.handle());
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
  std::vector<std::pair<Staged, Staged>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    need_same_type(kWhat, inputs[i], outputs[i]);
    all.emplace_back(stage(inputs[i], Use::kInput, kWhat), stage(outputs[i], Use::kOutput, kWhat));
    need_size(kWhat, "elements of the output", all.back().first.elements.count * static_cast<size_t>(size_),
              all.back().second.elements.count);
  }
  const auto type = inputs.size() == 1 ? c10d::OpType::_ALLGATHER_BASE : c10d::OpType::COALESCED;
  Start start(*this, mode_of(options), type, "farandole:_all_gather_base", inputs, outputs);
  for (const auto& [input, output] : all) {
    const Elements& from = input.elements;
    start.use(input);
    start.use(output);
    call(farandole_allgather, start.comm(), from.data, from.count, output.elements.data, nullptr, from.dtype,
         start.options(), start.handle());
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
  std::vector<std::tuple<Staged, at::Tensor, Tensors>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    need_same_type(kWhat, inputs[i], list.front());
    all.emplace_back(stage(inputs[i], Use::kInput, kWhat), joined(list, Use::kOutput, kWhat), list);
  }
  Start start(*this, mode_of(options), c10d::OpType::ALLGATHER_COALESCED, "farandole:all_gather_coalesced", inputs,
              all_outputs);
  for (auto& [input, whole, list] : all) {
    const Elements& from = input.elements;
    const std::vector<size_t> counts = counts_of(list);
    start.use(input);
    start.divide_at_end(whole, list);
    call(farandole_allgather, start.comm(), from.data, from.count, elements_of(whole).data, counts.data(), from.dtype,
         start.options(), start.handle());
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
  const Staged staged = stage(input, Use::kInput, kWhat);
  const Elements& from = staged.elements;
  Tensors list;
  at::Tensor whole;
  if (is_root) {
    list = outputs.front();
    need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), list.size());
    need_same_type(kWhat, input, list.front());
    whole = joined(list, Use::kOutput, kWhat);
    for (const size_t count : counts_of(list)) need_size(kWhat, "elements in each output", from.count, count);
  }
  Start start(*this, mode_of(options), c10d::OpType::GATHER, "farandole:gather", inputs, list);
  start.use(staged);
  if (is_root) start.divide_at_end(whole, list);
  call(farandole_gather, start.comm(), from.data, from.count, is_root ? elements_of(whole).data : nullptr, nullptr,
       from.dtype, static_cast<int32_t>(options.rootRank), start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                                    const c10d::GatherOptions& options) {
  constexpr const char* kWhat = "gather_into_tensor";
  need_root(kWhat, options.rootRank, size_);
  const bool is_root = options.rootRank == rank_;
  const Staged staged = stage(input, Use::kInput, kWhat);
  const Elements& from = staged.elements;
  Tensors outputs;
  Staged to;
  if (is_root) {
    need_same_type(kWhat, input, output);
    to = stage(output, Use::kOutput, kWhat);
    need_size(kWhat, "elements of the output", from.count * static_cast<size_t>(size_), to.elements.count);
    outputs.push_back(output);
  }
  Start start(*this, mode_of(options), c10d::OpType::GATHER, "farandole:gather", {input}, outputs);
  start.use(staged);
  start.use(to);
  call(farandole_gather, start.comm(), from.data, from.count, to.elements.data, nullptr, from.dtype,
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
  const Staged staged = stage(output, Use::kOutput, kWhat);
  const Elements& to = staged.elements;
  Tensors list;
  at::Tensor whole;
  if (is_root) {
    list = inputs.front();
    need_size(kWhat, "inputs, one per rank", static_cast<size_t>(size_), list.size());
    need_same_type(kWhat, list.front(), output);
    for (const size_t count : counts_of(list)) need_size(kWhat, "elements in each input", to.count, count);
    whole = joined(list, Use::kInput, kWhat);
  }
  Start start(*this, mode_of(options), c10d::OpType::SCATTER, "farandole:scatter", list, outputs);
  start.use(staged);
  if (is_root) start.work().keep(whole);
  call(farandole_scatter, start.comm(), is_root ? elements_of(whole).data : nullptr, to.data, to.count, nullptr,
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
  const Staged staged = stage(output, Use::kOutput, kWhat);
  const Elements& to = staged.elements;
  const std::vector<size_t> counts = counts_of(list);
  const Reduction reduction = reduction_of(options.reduceOp, output, kWhat);
  const at::Tensor whole = joined(list, Use::kInput, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::REDUCE_SCATTER, "farandole:reduce_scatter", list, outputs);
  start.use(staged);
  start.work().keep(whole);
  call(farandole_reduce_scatter, start.comm(), elements_of(whole).data, to.data, to.count, counts.data(), to.dtype,
       reduction.op, start.options(reduction.prescale), start.handle());
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
  std::vector<std::tuple<Staged, Staged, Reduction>> all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    need_same_type(kWhat, inputs[i], outputs[i]);
    const Staged from = stage(inputs[i], Use::kInput, kWhat);
    const Staged to = stage(outputs[i], Use::kOutput, kWhat);
    need_size(kWhat, "elements of the input", to.elements.count * static_cast<size_t>(size_), from.elements.count);
    all.emplace_back(from, to, reduction_of(options.reduceOp, inputs[i], kWhat));
  }
  const auto type = inputs.size() == 1 ? c10d::OpType::_REDUCE_SCATTER_BASE : c10d::OpType::COALESCED;
  Start start(*this, mode_of(options), type, "farandole:_reduce_scatter_base", inputs, outputs);
  for (const auto& [input, output, reduction] : all) {
    const Elements& to = output.elements;
    start.use(input);
    start.use(output);
    call(farandole_reduce_scatter, start.comm(), input.elements.data, to.data, to.count, nullptr, to.dtype,
         reduction.op, start.options(reduction.prescale), start.handle());
  }
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                               std::vector<int64_t>& output_sizes,
                                                               std::vector<int64_t>& input_sizes,
                                                               const c10d::AllToAllOptions& options) {
  constexpr const char* kWhat = "all_to_all_single";
  need_same_type(kWhat, input, output);
  const std::vector<size_t> sent = counts_of_rows(input, input_sizes, size_, kWhat, "input");
  const std::vector<size_t> received = counts_of_rows(output, output_sizes, size_, kWhat, "output");
  need_same_own_part(sent, received, rank_, elements_per_number(input), kWhat);
  const Staged from = stage(input, Use::kInput, kWhat);
  const Staged to = stage(output, Use::kOutput, kWhat);
  Start start(*this, mode_of(options), c10d::OpType::ALLTOALL_BASE, "farandole:all_to_all", {input}, {output});
  start.use(from);
  start.use(to);
  call(farandole_alltoall, start.comm(), from.elements.data, to.elements.data, size_t{0}, sent.data(), received.data(),
       from.elements.dtype, start.options(), start.handle());
  return start.launch();
}

c10::intrusive_ptr<c10d::Work> FarandoleBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllToAllOptions& options) {
  constexpr const char* kWhat = "all_to_all";
  need_size(kWhat, "inputs, one per rank", static_cast<size_t>(size_), inputs.size());
  need_size(kWhat, "outputs, one per rank", static_cast<size_t>(size_), outputs.size());
  need_same_type(kWhat, inputs.front(), outputs.front());
  const at::Tensor from = joined(inputs, Use::kInput, kWhat);
  at::Tensor to = joined(outputs, Use::kOutput, kWhat);
  const std::vector<size_t> sent = counts_of(inputs);
  const std::vector<size_t> received = counts_of(outputs);
  Start start(*this, mode_of(options), c10d::OpType::ALLTOALL, "farandole:all_to_all", inputs, outputs);
  start.work().keep(from);
  start.divide_at_end(to, outputs);
  const Elements source = elements_of(from);
  call(farandole_alltoall, start.comm(), source.data, elements_of(to).data, size_t{0}, sent.data(), received.data(),
       source.dtype, start.options(), start.handle());
  return start.launch();
}

}  // namespace farandole_torch
