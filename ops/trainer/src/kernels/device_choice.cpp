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
#include "farandole/internal/log.h"
#include "farandole/sdk/device.h"
#include "kernels/device_execution.h"
#include "kernels/device_form.h"
#include "short_text.h"

namespace farandole::trainer {
namespace {

/// What a rank tells the others of its device.
struct Offer {
  std::int32_t can = 0, has_driver = 0, host = 0;
  std::array<char, 64> identity{};
  std::array<char, 1024> reason{};  // why it cannot
};

Offer offer_of(Communicator& communicator, const std::string& why_not) {
  Offer offer;
  offer.host = communicator.placement().host_index;
  const DeviceAvailability& devices = device_runtime(internals(communicator).settings());
  offer.has_driver = devices.runtime != nullptr ? 1 : 0;
  std::string reason = devices.runtime == nullptr ? devices.reason : why_not;
  if (reason.empty() && communicator.size() > 1) reason = devices.runtime->collectives_missing();
  if (reason.empty()) {
    try {
      const Execution execution = device_execution(communicator);
      copy_text(devices.runtime->open(execution.space().ordinal).info().identity, offer.identity);
      offer.can = 1;
    } catch (const std::exception& error) {
      reason = error.what();
    }
  }
  copy_text(reason, offer.reason);
  return offer;
}

/// Says which two ranks have the same device; empty if none have.
std::string find_shared(const std::vector<Offer>& offers) {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (offers[rank].host == offers[other].host && offers[rank].identity == offers[other].identity) {
        return fmt::format("ranks {} and {} have the same device, {}", other, rank, offers[rank].identity.data());
      }
    }
  }
  return "";
}

/// Why the ranks compute on the CPU; empty if all can compute on devices.
std::string reason_for_cpu(const std::vector<Offer>& offers, bool may_share) {
  const auto bad = std::ranges::find_if(offers, [](const Offer& offer) { return offer.can == 0; });
  if (bad != offers.end()) return fmt::format("rank {}: {}", bad - offers.begin(), bad->reason.data());
  return may_share ? "" : find_shared(offers);
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
  const DeviceRuntime* const runtime = device_runtime(internals(communicator).settings()).runtime;
  const std::string reason = reason_for_cpu(all, runtime != nullptr && runtime->shares_devices());
  if (reason.empty()) return ComputeDevice::kCuda;
  const bool has_driver = std::ranges::any_of(all, [](const Offer& offer) { return offer.has_driver != 0; });
  if (communicator.rank() == 0) {
    log(has_driver ? LogLevel::kWarning : LogLevel::kInfo,
        fmt::format("the training computes on the CPU, and not on devices: {}", reason));
  }
  return ComputeDevice::kCpu;
}

}  // namespace farandole::trainer
