// SPDX-License-Identifier: Apache-2.0
#include "gradient_checks.h"

#include <fmt/core.h>

#include <algorithm>

#include "farandole/core/error.h"
#include "farandole/internal/communicator_access.h"
#include "farandole/internal/view_address.h"
#include "farandole/sdk/device.h"

namespace farandole {
namespace {

void check_options(const GradientOptions& options) {
  if (options.communicate_as && *options.communicate_as != DType::kF16 && *options.communicate_as != DType::kBF16) {
    throw InvalidArgument(
        fmt::format("GradientOptions::communicate_as: expected f16 or bf16, got {}", name(*options.communicate_as)));
  }
  if (options.weighted && options.op != ReduceOp::kAverage) {
    throw InvalidArgument(fmt::format("GradientOptions::weighted needs the op average, got {}", name(options.op)));
  }
}

/// Returns the runtime of this rank's device, which must be where the gradients are; null for host memory.
const DeviceRuntime* runtime_of(Communicator& communicator, MemorySpace space) {
  if (space.is_host()) return nullptr;
  if (const MemorySpace own = communicator.device(); own != space) {
    throw InvalidArgument(
        fmt::format("gradients: expected {}, the device of this rank, got {}", describe(own), describe(space)));
  }
  return device_runtime(internals(communicator).settings()).runtime;
}

/// @param space  where the first gradient is   @param runtime  result of `runtime_of`
void check_space(const GradientSpan& gradient, std::size_t index, MemorySpace space, const DeviceRuntime* runtime) {
  const BufferView& values = gradient.values;
  if (values.space != space) {
    throw InvalidArgument(fmt::format("gradient {}: expected {}, where the first one is, got {}", index,
                                      describe(space), describe(values.space)));
  }
  if (runtime == nullptr) return;
  const std::string what = fmt::format("gradient {} ({})", index, gradient.name);
  if (const std::string problem = address_problem(*runtime, what, values); !problem.empty()) {
    throw InvalidArgument(problem);
  }
}

}  // namespace

void check_gradients(Communicator& communicator, const std::vector<GradientSpan>& gradients,
                     const GradientOptions& options) {
  check_options(options);
  if (gradients.empty()) return;
  const MemorySpace space = gradients.front().values.space;
  const DeviceRuntime* const runtime = runtime_of(communicator, space);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    check_space(gradients[i], i, space, runtime);
    const DType dtype = gradients[i].values.dtype;
    if (!options.weighted || is_floating_point(dtype)) continue;
    throw InvalidArgument(fmt::format("gradient {} ({}): weighted averages need floating-point numbers, got {}", i,
                                      gradients[i].name, name(dtype)));
  }
}

std::vector<SharedFact> shared_facts(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& tied,
                                     const GradientOptions& options) {
  std::vector<SharedFact> facts{{"the number of gradients", std::to_string(gradients.size())}};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const BufferView& values = gradients[i].values;
    const std::string tie = tied[i] == i ? "" : fmt::format(", tied to gradient {}", tied[i]);
    facts.push_back({fmt::format("gradient {}", i),
                     fmt::format("{} elements of {} in {} memory{}", values.count, name(values.dtype),
                                 values.space.is_host() ? "host" : "device", tie)});
  }
  facts.push_back({"bucket_bytes", std::to_string(options.bucket_bytes)});
  facts.push_back({"last_bucket_bytes", std::to_string(options.last_bucket_bytes)});
  facts.push_back({"op", std::string(name(options.op))});
  facts.push_back({"algorithm", fmt::format("'{}'", options.algorithm)});
  facts.push_back({"unmarked", options.unmarked == UnmarkedGradients::kZero ? "zero" : "error"});
  facts.push_back({"weighted", options.weighted ? "true" : "false"});
  facts.push_back({"communicate_as", std::string(options.communicate_as ? name(*options.communicate_as) : "none")});
  return facts;
}

void throw_if_refused(Communicator& communicator, const std::string& refusal) {
  const int rank = lowest_rank_where(communicator, !refusal.empty());
  if (rank == communicator.size()) return;
  const std::string why = broadcast_text(communicator, refusal, rank);
  if (!refusal.empty()) throw InvalidArgument(refusal);
  throw Mismatch(fmt::format("{} refuses its gradients: {}", communicator.describe(rank), why));
}

std::string unmarked_error(const std::vector<GradientSpan>& gradients, const std::vector<std::size_t>& unmarked) {
  constexpr std::size_t kMaxNamed = 8;
  std::string names;
  for (std::size_t k = 0; k < std::min(unmarked.size(), kMaxNamed); ++k) {
    names += fmt::format("{}{} ({})", k == 0 ? "" : ", ", unmarked[k], gradients[unmarked[k]].name);
  }
  return fmt::format(
      "wait: {} of {} gradients are not marked in this training step: {}{}; call ready() for each, or ready_all(), "
      "before wait(), or set GradientOptions::unmarked to kZero if ranks may skip parameters",
      unmarked.size(), gradients.size(), names, unmarked.size() > kMaxNamed ? ", …" : "");
}

}  // namespace farandole
