// SPDX-License-Identifier: Apache-2.0
#include "cudnn_attention.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <span>
#include <vector>

#include "farandole/core/error.h"

namespace farandole::trainer::cuda {
namespace {

/// So that each row of each head begins at a multiple of 16 bytes.
constexpr std::int64_t kHeadUnitsMultiple = 8;
constexpr int kOldestCapability = 80;
/// From this compute capability on, no deterministic engine is known for the backward pass.
constexpr int kNotDeterministicFrom = 100;
constexpr float kOne = 1, kMasked = -std::numeric_limits<float>::infinity();

std::string reason_against(const CudnnLibrary& library, int capability, const DeviceComputation& computation) {
  if (!library.why_not.empty()) return library.why_not;
  if (!is_half(computation.compute)) return "cuDNN computes attention in bf16 and f16 only";
  if (library.number < CudnnAttention::kOldestVersion) {
    return fmt::format("cuDNN {} is too old for attention: {} or newer is needed", library.version,
                       version_text(CudnnAttention::kOldestVersion));
  }
  if (capability < kOldestCapability) return "cuDNN computes attention from compute capability 8.0 on";
  if (computation.choice == AlgorithmChoice::kFixed && capability >= kNotDeterministicFrom) {
    return "in deterministic mode cuDNN computes attention up to compute capability 9.x";
  }
  return {};
}

/// The parts of a row of Q, K and V, or of their gradients.
std::array<GraphAddress, 3> parts(const AttentionForm& form, const std::array<AttentionTensor, 3>& ids, void* rows) {
  auto* const first = static_cast<HalfBits*>(rows);
  const std::int64_t units = form.units();
  return {{{ids[0], first}, {ids[1], first + units}, {ids[2], first + 2 * units}}};
}

template <class T>
T* take(Workspace::Scope& scope, std::int64_t count) {
  return scope.take<T>(static_cast<std::size_t>(count)).data();
}

}  // namespace

CudnnAttention::CudnnAttention(const CudnnLibrary& library, CudnnPlans& cudnn, const Launcher& launcher,
                               const DeviceComputation& computation)
    : cudnn_(cudnn),
      launcher_(launcher),
      computation_(computation),
      why_not_(reason_against(library, launcher.device().info().compute_capability, computation)) {}

/// Plans own code on the device, so the device is current while they are destroyed.
CudnnAttention::~CudnnAttention() {
  launcher_.device().run_bound([&] { plans_.clear(); });
}

bool CudnnAttention::refuse(const AttentionForm& form, std::string_view reason) {
  refusal_ = fmt::format("not for {} samples of {} positions with {} heads of {} units, {}causal: {}", form.samples,
                         form.length, form.heads, form.head_units, form.causal ? "" : "not ", reason);
  return false;
}

/// Looks for a plan, unless that has been done. Returns true if there is one.
template <class MakeGraph>
bool CudnnAttention::choose(Choice& choice, Workspace& workspace, const AttentionForm& form,
                            const MakeGraph& make_graph) {
  if (choice.is_known) return choice.plan.has_value();
  choice.is_known = true;
  try {
    const Cudnn& cudnn = cudnn_.library();
    cudnn.device().run_bound(
        [&] { choice.plan.emplace(make_graph(cudnn.api()).plan({cudnn.handle()}, {is_fixed()})); });
  } catch (const GraphRefused& refused) {
    return refuse(form, refused.what());
  } catch (const DeviceError& error) {  // cuDNN cannot use the device
    return refuse(form, message_of(error));
  }
  if (has_memory(workspace, choice.plan->workspace_bytes())) return true;
  const std::size_t needed = choice.plan->workspace_bytes();
  launcher_.device().run_bound([&] { choice.plan.reset(); });
  return refuse(form, fmt::format("no memory for cuDNN's workspace of {} bytes", needed));
}

bool CudnnAttention::fuses(Workspace& workspace, const AttentionForm& form, bool with_gradients) {
  if (!is_possible()) return false;
  if (form.head_units % kHeadUnitsMultiple != 0) return refuse(form, "heads need a multiple of 8 units");
  const std::int64_t most_units = launcher_.device().info().compute_capability / 10 == 9 ? 256 : 128;
  if (with_gradients && form.head_units > most_units) {
    return refuse(form, fmt::format("with gradients, heads have up to {} units on this device", most_units));
  }
  const cudnnDataType_t type = cudnn_type_of(computation_.compute);
  if (plans_.size() == kMaxForms && !plans_.contains(form)) {
    return refuse(form, fmt::format("there are plans for {} other shapes", kMaxForms));
  }
  Plans& plans = plans_[form];
  const bool has_forward =
      choose(plans.forward, workspace, form, [&](const CudnnApi& api) { return attention_graph(api, form, type); });
  if (!has_forward || !with_gradients) return has_forward;
  return choose(plans.backward, workspace, form,
                [&](const CudnnApi& api) { return attention_gradient_graph(api, form, type, query_sums()); });
}

void CudnnAttention::forward(Workspace& workspace, const AttentionForm& form, const float* qkv,
                             const FusedAttentionMemory<float>& memory) {
  const GraphPlan& plan = *plans_.at(form).forward.plan;
  Workspace::Scope scope(workspace);
  auto* const scratch = take<std::uint8_t>(scope, static_cast<std::int64_t>(plan.workspace_bytes()));
  const std::int64_t count = form.rows() * 3 * form.units();
  launcher_.launch(HalfKernel::kNarrow, computation_.compute, count,
                   {writes(static_cast<HalfBits*>(memory.qkv), count), reads(qkv, count)}, {count});
  const auto scale = static_cast<float>(form.scale());
  const auto [query, key, value] = parts(form, {kAttentionQuery, kAttentionKey, kAttentionValue}, memory.qkv);
  const std::array<GraphAddress, 7> addresses{{query,
                                               key,
                                               value,
                                               {kAttentionContext, memory.context},
                                               {kAttentionStatistics, memory.statistics},
                                               {kAttentionScale, &scale},
                                               {kAttentionMask, &kMasked}}};
  plan.execute(cudnn_.library(), std::span(addresses).first(form.causal ? 7 : 6), scratch);
}

void CudnnAttention::backward(Workspace& workspace, const AttentionForm& form,
                              const FusedAttentionMemory<float>& memory, const float* context_gradient, void* rounded,
                              float* qkv_gradient) {
  if (!fuses(workspace, form, true)) {
    throw DeviceError(
        fmt::format("cuDNN computed attention, but cannot compute its gradient ({}); make the forward pass "
                    "one of training, which asks for both",
                    refusal_));
  }
  const GraphPlan& plan = *plans_.at(form).backward.plan;
  Workspace::Scope scope(workspace);
  const std::int64_t count = form.rows() * form.units(), statistics = form.rows() * form.heads;
  auto* const scratch = take<std::uint8_t>(scope, static_cast<std::int64_t>(plan.workspace_bytes()));
  auto* const narrow = take<HalfBits>(scope, count);
  auto* const products = take<float>(scope, statistics);
  launcher_.launch(HalfKernel::kNarrow, computation_.compute, count,
                   {writes(narrow, count), reads(context_gradient, count)}, {count});
  const auto scale = static_cast<float>(form.scale());
  const auto [query, key, value] = parts(form, {kAttentionQuery, kAttentionKey, kAttentionValue}, memory.qkv);
  const auto [query_gradient, key_gradient, value_gradient] =
      parts(form, {kAttentionQueryGradient, kAttentionKeyGradient, kAttentionValueGradient}, rounded);
  std::vector<GraphAddress> addresses{query,
                                      key,
                                      value,
                                      query_gradient,
                                      key_gradient,
                                      value_gradient,
                                      {kAttentionContext, memory.context},
                                      {kAttentionStatistics, memory.statistics},
                                      {kAttentionContextGradient, narrow},
                                      {kAttentionProducts, products},
                                      {kAttentionScale, &scale},
                                      {kAttentionOne, &kOne}};
  if (form.causal) addresses.push_back({kAttentionMask, &kMasked});
  if (query_sums() == QuerySums::kAtomic) addresses.push_back({kAttentionQuerySums, take<float>(scope, count)});
  plan.execute(cudnn_.library(), addresses, scratch);
  launcher_.launch(HalfKernel::kWiden, computation_.compute, 3 * count,
                   {writes(qkv_gradient, 3 * count), reads(static_cast<const HalfBits*>(rounded), 3 * count),
                    reads(static_cast<const float*>(nullptr), 0)},
                   {3 * count, 3 * form.units()});
}

}  // namespace farandole::trainer::cuda
