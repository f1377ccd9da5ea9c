// SPDX-License-Identifier: Apache-2.0
#include "gradient_checks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

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

void check_space(Communicator& communicator, const std::vector<GradientSpan>& gradients, std::size_t index) {
  const BufferView& values = gradients[index].values;
  if (const MemorySpace space = gradients.front().values.space; values.space != space) {
    throw InvalidArgument(fmt::format("gradient {}: expected {}, where the first one is, got {}", index,
                                      describe(space), describe(values.space)));
  }
  if (values.space.is_host()) return;
  if (const MemorySpace own = communicator.device(); own != values.space) {
    throw InvalidArgument(
        fmt::format("gradients: expected {}, the device of this rank, got {}", describe(own), describe(values.space)));
  }
  const DeviceRuntime& runtime = *device_runtime(internals(communicator).settings()).runtime;
  const std::string what = fmt::format("gradient {} ({})", index, gradients[index].name);
  if (const std::string problem = address_problem(runtime, what, values); !problem.empty()) {
    throw InvalidArgument(problem);
  }
}

}  // namespace

void check_gradients(Communicator& communicator, const std::vector<GradientSpan>& gradients,
                     const GradientOptions& options) {
  check_options(options);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    check_space(communicator, gradients, i);
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
  std::int64_t refusing = refusal.empty() ? communicator.size() : communicator.rank();
  communicator.allreduce(BufferView(&refusing, 1, DType::kI64), ReduceOp::kMin);
  if (refusing == communicator.size()) return;
  const int rank = static_cast<int>(refusing);
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
