// SPDX-License-Identifier: Apache-2.0
#include "json_log.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
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

/// Times in seconds and operations per training step.
Json values_of(const TrainingProfile& profile) {
  Json layers = Json::array();
  for (const LayerProfile& layer : profile.layers) {
    const std::optional<double> flops = profile.flops(layer);
    layers.push_back({{"name", layer.layer.name},
                      {"kind", layer.layer.kind},
                      {"output", layer.layer.output},
                      {"forward", layer.forward},
                      {"backward", layer.backward},
                      {"flops", flops ? Json(*flops) : nullptr}});
  }
  const StepParts& parts = profile.parts;
  return {{"replica", profile.replica},
          {"steps", profile.steps},
          {"samples", profile.samples},
          {"kernel_threads", profile.kernel_threads},
          {"local_replicas", profile.local_replicas},
          {"layers", layers},
          {"loss", parts.loss},
          {"averaging", parts.averaging},
          {"update", parts.update},
          {"input", parts.input},
          {"rest", parts.rest},
          {"step", profile.step},
          {"peak", profile.peak},
          {"slowest_replica", profile.slowest_replica},
          {"slowest_seconds", profile.slowest_seconds},
          {"busy_seconds", profile.busy_seconds}};
}

}  // namespace

JsonLog::JsonLog(std::filesystem::path file) : file_("--json", std::move(file)) {}

void JsonLog::begin(std::int64_t training_steps) {
  file_.drop_from([training_steps](const std::string& line) {
    if (training_steps == 0) return true;
    const Json fields = Json::parse(line, nullptr, false);
    if (!fields.is_object()) return false;
    const char* const name = fields.contains("training_step") ? "training_step" : "training_steps";
    return fields.contains(name) && fields[name].is_number() && fields[name].get<std::int64_t>() > training_steps;
  });
}

void JsonLog::step(const StepReport& report) {
  const std::string loss = std::isfinite(report.loss) ? fmt::format("{:.17g}", report.loss) : "null";
  file_.write(fmt::format("{{\"training_step\":{},\"loss\":{},\"learning_rate\":{},\"seconds\":{:.6f}}}",
                          report.training_step, loss, report.learning_rate, report.seconds));
}

void JsonLog::epoch(const EpochReport& report, bool last) {
  Json line{{"epoch", report.epoch}, {"training_steps", report.training_steps}, {"loss", report.loss}};
  line["metrics"] = values_of(report.metrics);
  line["test_loss"] = report.test ? Json(report.test->loss) : nullptr;
  const MetricResult* accuracy = report.test ? find_metric(report.test->metrics, "accuracy") : nullptr;
  line["test_accuracy"] = accuracy != nullptr ? Json(accuracy->value) : nullptr;
  line["test_metrics"] = report.test ? values_of(report.test->metrics) : nullptr;
  line["learning_rate"] = report.learning_rate;
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
  if (report.profile) line["profile"] = values_of(*report.profile);
  if (last) line["final"] = true;
  file_.write(line.dump());
}

}  // namespace farandole::trainer
