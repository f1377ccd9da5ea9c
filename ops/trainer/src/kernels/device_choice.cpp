// SPDX-License-Identifier: Apache-2.0
#include "kernels/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <vector>

#include "farandole/internal/communicator_access.h"
#include "farandole/sdk/device.h"
#include "kernels/device_execution.h"
#include "kernels/device_form.h"

namespace farandole::trainer {
namespace {

/// What a rank tells the others of its device.
struct Offer {
  std::int32_t can = 0, host = 0;
  std::array<char, 64> identity{};
};

Offer offer_of(Communicator& communicator, const std::string& why_not) {
  Offer offer;
  offer.host = communicator.placement().host_index;
  const DeviceAvailability& devices = device_runtime(internals(communicator).settings());
  if (!why_not.empty() || devices.runtime == nullptr) return offer;
  if (communicator.size() > 1 && !devices.runtime->collectives_missing().empty()) return offer;
  try {
    const Execution execution = device_execution(communicator);
    const std::string& identity = devices.runtime->open(execution.space().ordinal).info().identity;
    std::copy_n(identity.begin(), std::min(identity.size(), offer.identity.size()), offer.identity.begin());
    offer.can = 1;
  } catch (const std::exception&) {
    // The device or a library cannot be used; with kCuda the trainer says why.
  }
  return offer;
}

/// True if two ranks have the same device.
bool is_shared(const std::vector<Offer>& offers) {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (offers[rank].host == offers[other].host && offers[rank].identity == offers[other].identity) return true;
    }
  }
  return false;
}

}  // namespace

template <class Scalar>
std::string why_not_on_devices(const TrainingParts<Scalar>& parts) {
  const DeviceForm needed = parts.options.graph ? DeviceForm::kGraphs : DeviceForm::kStreams;
  std::string problem = parts.model.why_not_on_devices(needed);
  const auto check = [&problem, needed](const char* kind, const auto& part) {
    if (!problem.empty()) return;
    problem = device_problem(fmt::format("the {} '{}'", kind, part.name()), part.device_form(), needed);
  };
  check("loss", parts.loss);
  for (const auto& metric : parts.metrics) check("metric", *metric);
  const OptimizerOptions& optimizer = parts.options.optimizer;
  check("optimizer", *make_update_rule<Scalar>(optimizer));
  if (problem.empty() && optimizer.master && *optimizer.master != dtype_of<Scalar>) {
    problem = fmt::format(
        "an optimizer with master values of {} computes in host memory only. Train on the CPU, or leave "
        "OptimizerOptions::master empty",
        name(*optimizer.master));
  }
  return problem;
}
template std::string why_not_on_devices(const TrainingParts<float>&);
template std::string why_not_on_devices(const TrainingParts<double>&);

ComputeDevice choose_device(Communicator& communicator, const std::string& why_not) {
  const Offer own = offer_of(communicator, why_not);
  std::vector<Offer> all(static_cast<std::size_t>(communicator.size()), own);
  communicator.allgather(ConstBufferView(&own, sizeof own, DType::kU8),
                         BufferView(all.data(), all.size() * sizeof own, DType::kU8));
  const bool can = std::ranges::all_of(all, [](const Offer& offer) { return offer.can != 0; });
  if (!can) return ComputeDevice::kCpu;
  const bool may_share = device_runtime(internals(communicator).settings()).runtime->shares_devices();
  return is_shared(all) && !may_share ? ComputeDevice::kCpu : ComputeDevice::kCuda;
}

}  // namespace farandole::trainer
