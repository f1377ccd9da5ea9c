// SPDX-License-Identifier: Apache-2.0
#include "json_log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace farandole::trainer {
namespace {

using Json = nlohmann::ordered_json;

/// The values by name; JSON writes NaN as null.
Json values_of(const std::vector<MetricResult>& metrics) {
  Json values = Json::object();
  for (const MetricResult& metric : metrics) values[metric.name] = metric.value;
  return values;
}

/// By phase; null if nothing was measured.
Json values_of(const std::optional<DeviceTimes>& times) {
  if (!times) return nullptr;
  return {{"steps", times->steps},
          {"input", times->input},
          {"forward", times->forward},
          {"backward", times->backward},
          {"exposed_communication", times->exposed_communication},
          {"update", times->update},
          {"graph_steps", times->graph_steps},
          {"graph_input", times->graph_input},
          {"graph_gradients", times->graph_gradients},
          {"graph_update", times->graph_update}};
}

}  // namespace

JsonLog::JsonLog(std::filesystem::path file, bool append) : file_("--json", std::move(file), append) {}

void JsonLog::step(const StepReport& report) {
  file_.write(fmt::format("{{\"training_step\":{},\"loss\":{:.17g},\"seconds\":{:.6f}}}", report.training_step,
                          report.loss, report.seconds));
}

void JsonLog::epoch(const EpochReport& report, bool last) {
  Json line{{"epoch", report.epoch}, {"training_steps", report.training_steps}, {"loss", report.loss}};
  line["metrics"] = values_of(report.metrics);
  line["test_loss"] = report.test ? Json(report.test->loss) : nullptr;
  const MetricResult* accuracy = report.test ? find_metric(report.test->metrics, "accuracy") : nullptr;
  line["test_accuracy"] = accuracy != nullptr ? Json(accuracy->value) : nullptr;
  line["test_metrics"] = report.test ? values_of(report.test->metrics) : nullptr;
  line["images_per_second"] = report.images_per_second;
  line["seconds"] = report.seconds;
  line["exposed_communication_share"] = report.exposed_communication_share;
  line["input_waiting_share"] = report.input_waiting_share;
  line["device_times"] = values_of(report.device_times);
  line["peak_share"] = report.peak_share ? Json(*report.peak_share) : nullptr;
  line["skipped_steps"] = report.skipped_steps;
  line["loss_scale"] = report.loss_scale ? Json(*report.loss_scale) : nullptr;
  const auto& checksum = report.parameters_checksum;
  line["parameters_checksum"] = checksum ? Json(fmt::format("{:08x}", *checksum)) : nullptr;
  line["replicas"] = report.replicas;
  if (last) line["final"] = true;
  file_.write(line.dump());
}

}  // namespace farandole::trainer
