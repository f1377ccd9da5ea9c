// SPDX-License-Identifier: Apache-2.0
#include "manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "checksum.h"
#include "json_fields.h"

namespace farandole::trainer {
namespace {

using Tensors = std::span<const CheckpointTensor>;

constexpr const char* kFormat = "farandole checkpoint";
// Version 1 has the epoch's right answers ("epoch_correct") instead of the metrics.
constexpr int kVersion = 2;
constexpr const char* kOwnChecksum = "manifest_crc32";

/// Checksum of the manifest's text. The caller has left out the field that holds this checksum.
std::string checksum_of_text(const Json& manifest) {
  const std::string text = manifest.dump();
  return crc32_text(std::as_bytes(std::span(text)));
}

Json describe_tensors(Tensors tensors) {
  Json list = Json::array();
  for (const CheckpointTensor& tensor : tensors) {
    list.push_back({{"name", tensor.name},
                    {"shape", tensor.shape},
                    {"dtype", name(tensor.values.dtype)},
                    {"crc32", crc32_text(tensor.values)}});
  }
  return list;
}

std::vector<Manifest::Tensor> read_tensors(const Json& list) {
  std::vector<Manifest::Tensor> tensors;
  for (const Json& tensor : list) {
    tensors.push_back({tensor.at("name").get<std::string>(), shape_from(tensor.at("shape")),
                       tensor.at("dtype").get<std::string>(), tensor.at("crc32").get<std::string>()});
  }
  return tensors;
}

// JSON has no infinity: `best` is null until the first loss.
Json describe_plateau(const PlateauState& plateau) {
  return {{"best", std::isfinite(plateau.best) ? Json(plateau.best) : Json()},
          {"bad_losses", plateau.bad_losses},
          {"factor", plateau.factor},
          {"pending", plateau.pending}};
}

PlateauState read_plateau(const Json& plateau) {
  const Json& best = plateau.at("best");
  const auto factor = plateau.at("factor").get<double>();
  if (!(factor >= 0 && factor <= 1)) throw DataError(fmt::format("{} is no factor of a learning rate", factor));
  return {.best = best.is_null() ? std::numeric_limits<double>::infinity() : best.get<double>(),
          .bad_losses = count_from(plateau.at("bad_losses")),
          .factor = factor,
          .pending = plateau.at("pending").get<bool>()};
}

Json describe_monitor(const MonitorState& monitor) {
  return {{"best", std::isfinite(monitor.best) ? Json(monitor.best) : Json()},
          {"best_step", monitor.best_step},
          {"bad_results", monitor.bad_results},
          {"pending", monitor.pending}};
}

MonitorState read_monitor(const Json& monitor) {
  const Json &best = monitor.at("best"), &best_step = monitor.at("best_step");
  return {.best = best.is_null() ? std::numeric_limits<double>::quiet_NaN() : best.get<double>(),
          .best_step = best_step == -1 ? -1 : count_from(best_step),
          .bad_results = count_from(monitor.at("bad_results")),
          .pending = monitor.at("pending").get<bool>()};
}

std::vector<std::pair<std::string, std::string>> read_options(const Json& options) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [option, value] : options.items()) result.emplace_back(option, value.get<std::string>());
  return result;
}

Json describe_options(const std::vector<std::pair<std::string, std::string>>& options) {
  Json object = Json::object();
  for (const auto& [option, value] : options) object[option] = value;
  return object;
}

// JSON has neither infinity nor NaN: both are written as null, and read as NaN.
Json describe_metrics(const std::vector<EpochMetric>& metrics) {
  Json list = Json::array();
  for (const EpochMetric& metric : metrics) list.push_back({{"name", metric.name}, {"sums", metric.sums}});
  return list;
}

std::vector<EpochMetric> read_metrics(const Json& manifest, const CheckpointState& state) {
  if (manifest.at("version") == 1) {
    const auto correct = static_cast<double>(count_from(manifest.at("epoch_correct")));
    return {{"accuracy", {correct, static_cast<double>(state.position)}}};
  }
  std::vector<EpochMetric> metrics;
  for (const Json& each : manifest.at("epoch_metrics")) {
    EpochMetric& metric = metrics.emplace_back(EpochMetric{each.at("name").get<std::string>(), {}});
    for (const Json& sum : each.at("sums")) {
      metric.sums.push_back(sum.is_null() ? std::numeric_limits<double>::quiet_NaN() : sum.get<double>());
    }
  }
  return metrics;
}

Json describe_loss_scale(const LossScaleState& state) {
  return {{"scale", state.scale}, {"good_steps", state.good_steps}, {"skipped_steps", state.skipped_steps}};
}

LossScaleState read_loss_scale(const Json& state) {
  const auto scale = state.at("scale").get<double>();
  if (!(scale > 0 && std::isfinite(scale))) throw DataError(fmt::format("the loss scale is {}", scale));
  return {.scale = scale,
          .good_steps = count_from(state.at("good_steps")),
          .skipped_steps = count_from(state.at("skipped_steps"))};
}

Json describe_model(const ModelDescription& model) {
  return {{"input", model.input}, {"output", model.output}, {"parameters", model.parameters}, {"layers", model.layers}};
}

ModelDescription read_model(const Json& model) {
  return {.input = shape_from(model.at("input")),
          .output = shape_from(model.at("output")),
          .layers = model.at("layers").get<std::vector<std::string>>(),
          .parameters = count_from(model.at("parameters"))};
}

Manifest read(Json& manifest) {
  if (manifest.at("format") != kFormat) throw DataError("not the manifest of a checkpoint");
  const auto own_checksum = manifest.at(kOwnChecksum).get<std::string>();
  manifest.erase(kOwnChecksum);
  if (own_checksum != checksum_of_text(manifest)) throw DataError("altered: its checksum differs");
  if (manifest.at("version") != 1 && manifest.at("version") != kVersion) {
    throw Unsupported(fmt::format("version {} of the format; this program reads versions 1 to {}",
                                  manifest.at("version").dump(), kVersion));
  }
  Manifest result;
  result.state = {.training_step = count_from(manifest.at("training_step")),
                  .epoch = count_from(manifest.at("epoch")),
                  .position = count_from(manifest.at("position")),
                  .loss_sum = manifest.at("epoch_loss_sum").get<double>()};
  result.state.metrics = read_metrics(manifest, result.state);
  result.state.options = read_options(manifest.at("options"));
  // Manifests of trainings without such a state, and of older programs, do not have these fields.
  if (const auto uncounted = manifest.find("uncounted"); uncounted != manifest.end()) {
    result.state.uncounted = count_from(*uncounted);
  }
  if (const auto plateau = manifest.find("plateau"); plateau != manifest.end()) {
    result.state.plateau = read_plateau(*plateau);
  }
  if (const auto monitor = manifest.find("monitor"); monitor != manifest.end()) {
    result.state.monitor = read_monitor(*monitor);
  }
  if (const auto scale = manifest.find("loss_scale"); scale != manifest.end()) {
    result.state.loss_scale = read_loss_scale(*scale);
  }
  if (const auto model = manifest.find("description"); model != manifest.end()) {
    result.state.model = read_model(*model);
  }
  if (const auto other = manifest.find("other_options"); other != manifest.end()) {
    result.state.other_options = read_options(*other);
  }
  result.model = read_tensors(manifest.at("model"));
  result.optimizer = read_tensors(manifest.at("optimizer"));
  return result;
}

}  // namespace

std::string crc32_text(std::span<const std::byte> bytes) {
  return fmt::format("{:08x}", checksum(bytes));
}

std::string crc32_text(const BufferView& values) {
  return crc32_text(std::span(static_cast<const std::byte*>(values.data), values.size_in_bytes()));
}

std::string write_manifest(const CheckpointState& state, Tensors model, Tensors optimizer) {
  Json manifest{{"format", kFormat},
                {"version", kVersion},
                {"training_step", state.training_step},
                {"epoch", state.epoch},
                {"position", state.position},
                {"epoch_loss_sum", state.loss_sum},
                {"epoch_metrics", describe_metrics(state.metrics)},
                {"options", describe_options(state.options)},
                {"model", describe_tensors(model)},
                {"optimizer", describe_tensors(optimizer)}};
  if (state.uncounted > 0) manifest["uncounted"] = state.uncounted;
  if (state.plateau) manifest["plateau"] = describe_plateau(*state.plateau);
  if (state.monitor) manifest["monitor"] = describe_monitor(*state.monitor);
  if (state.loss_scale) manifest["loss_scale"] = describe_loss_scale(*state.loss_scale);
  if (state.model) manifest["description"] = describe_model(*state.model);
  if (!state.other_options.empty()) manifest["other_options"] = describe_options(state.other_options);
  manifest[kOwnChecksum] = checksum_of_text(manifest);
  return manifest.dump(2) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  try {
    Json manifest = parse_json(text);
    return read(manifest);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: cut or altered: {}", file, error.what()));
  } catch (const Error& error) {
    throw_error(error.kind(), fmt::format("{}: {}", file, error.message()));
  }
}

}  // namespace farandole::trainer
