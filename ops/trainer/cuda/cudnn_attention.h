// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's fused kernels.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "attention_graphs.h"
#include "cudnn_plans.h"
#include "kernels/fused_attention.h"
#include "launcher.h"

namespace farandole::trainer::cuda {

/// Attention in bf16 or f16. Keeps all plans, because work in the stream and captured graphs use their kernels, so it
/// refuses further forms after kMaxForms. Used by one thread at a time.
///
/// AlgorithmChoice::kFixed takes only engines that cuDNN does not call nondeterministic, with QuerySums::kOrdered; the
/// results of a form are the same each time. AlgorithmChoice::kMeasured takes cuDNN's first engine with
/// QuerySums::kAtomic, which needs no memory for squares of scores: gradients may differ in their last digits each
/// time.
class CudnnAttention final : public FusedAttention<float> {
 public:
  static constexpr std::size_t kMaxForms = 512;
  /// Before, the backward graph needs a padding mask for lengths that are no multiple of 128. (And before 9.6 cuDNN did
  /// not clear what QuerySums::kAtomic adds to.)
  static constexpr std::size_t kOldestVersion = 91600;

  /// @param library, cudnn, launcher  outlive this object
  CudnnAttention(const CudnnLibrary& library, CudnnPlans& cudnn, const Launcher& launcher,
                 const DeviceComputation& computation);
  ~CudnnAttention() override;
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Why this object computes nothing, or did not compute a form; empty if there is no such reason.
  const std::string& why_not() const { return is_possible() ? refusal_ : why_not_; }

  bool fuses(Workspace& workspace, const AttentionForm& form, bool with_gradients) override;
  void forward(Workspace& workspace, const AttentionForm& form, const float* qkv,
               const FusedAttentionMemory<float>& memory) override;
  void backward(Workspace& workspace, const AttentionForm& form, const FusedAttentionMemory<float>& memory,
                const float* context_gradient, void* rounded, float* qkv_gradient) override;

 private:
  /// A plan, once it has been looked for.
  struct Choice {
    bool is_known = false;
    std::optional<GraphPlan> plan;
  };
  struct Plans {
    Choice forward, backward;
  };
  bool is_possible() const { return why_not_.empty(); }
  bool is_fixed() const { return computation_.choice == AlgorithmChoice::kFixed; }
  QuerySums query_sums() const { return is_fixed() ? QuerySums::kOrdered : QuerySums::kAtomic; }
  /// Keeps the reason. Returns false.
  bool refuse(const AttentionForm& form, std::string_view reason);
  template <class MakeGraph>
  bool choose(Choice& choice, Workspace& workspace, const AttentionForm& form, const MakeGraph& make_graph);

  CudnnPlans& cudnn_;
  const Launcher& launcher_;
  const DeviceComputation computation_;
  const std::string why_not_;
  std::string refusal_;
  std::map<AttentionForm, Plans> plans_;
};

}  // namespace farandole::trainer::cuda
