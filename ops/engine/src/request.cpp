#include "request.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

namespace farandole {
namespace {

using nlohmann::json;

json to_json(const Telling& telling) {
  const RequestSpec& spec = *telling.spec;
  json tensors = json::array();
  for (const TensorSpec& tensor : spec.tensors) {
    tensors.push_back({static_cast<int>(tensor.dtype), tensor.shape});
  }
  return {spec.name,
          static_cast<int>(spec.kind),
          static_cast<int>(spec.op),
          spec.adasum,
          spec.root,
          spec.prescale,
          spec.postscale,
          std::move(tensors),
          spec.arguments,
          telling.in_step,
          spec.about,
          spec.by_order};
}

Telling from_json(const json& fields) {
  RequestSpec spec;
  spec.name = fields.at(0);
  spec.kind = static_cast<RequestKind>(fields.at(1).get<int>());
  spec.op = static_cast<ReduceOp>(fields.at(2).get<int>());
  spec.adasum = fields.at(3);
  spec.root = fields.at(4);
  spec.prescale = fields.at(5);
  spec.postscale = fields.at(6);
  for (const json& tensor : fields.at(7)) {
    spec.tensors.push_back({static_cast<DType>(tensor.at(0).get<int>()), tensor.at(1)});
  }
  spec.arguments = fields.at(8).get<std::vector<std::int64_t>>();
  spec.about = fields.at(10);
  spec.by_order = fields.at(11);
  return {std::make_shared<RequestSpec>(std::move(spec)), fields.at(9)};
}

std::string describe(const TensorSpec& tensor) {
  return fmt::format("{}[{}]", name(tensor.dtype), fmt::join(tensor.shape, ", "));
}

}  // namespace

std::string_view name(RequestKind kind) {
  constexpr std::array<std::string_view, 9> kNames{"allreduce",       "allgather",          "broadcast",
                                                   "alltoall",        "reduce_scatter",     "barrier",
                                                   "add_process_set", "remove_process_set", "an invalid request"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::size_t TensorSpec::count() const {
  std::size_t product = 1;
  for (const std::int64_t length : shape) product *= static_cast<std::size_t>(length);
  return product;
}

std::size_t RequestSpec::size_in_bytes() const {
  std::size_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.size_in_bytes();
  return sum;
}

std::string describe(const RequestSpec& spec) {
  std::string text = fmt::format("{} '{}'", name(spec.kind), spec.name);
  constexpr std::size_t kShown = 3;
  for (std::size_t i = 0; i < spec.tensors.size() && i < kShown; ++i) text += " " + describe(spec.tensors[i]);
  if (spec.tensors.size() > kShown) text += fmt::format(" and {} more tensors", spec.tensors.size() - kShown);
  if (!spec.arguments.empty()) text += fmt::format(" [{}]", fmt::join(spec.arguments, ", "));
  if (spec.adasum) text += " adasum";
  if (!spec.adasum && (spec.kind == RequestKind::kAllreduce || spec.kind == RequestKind::kReduceScatter)) {
    text += fmt::format(" {}", name(spec.op));
  }
  if (spec.root >= 0) text += fmt::format(" from root {}", spec.root);
  if (spec.prescale != 1.0) text += fmt::format(" prescale {}", spec.prescale);
  if (spec.postscale != 1.0) text += fmt::format(" postscale {}", spec.postscale);
  if (!spec.about.empty()) text += fmt::format(" ({})", spec.about);
  return text;
}

RequestError as_request_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return {known != nullptr ? known->kind() : ErrorKind::kInternal, error.what()};
}

std::string News::encode() const {
  json specs = json::array();
  for (const Telling& telling : requests) specs.push_back(to_json(telling));
  std::string bytes;
  json::to_cbor(json{std::move(specs), joins, static_cast<int>(departs), waits_for}, bytes);
  return bytes;
}

News News::decode(std::string_view bytes) {
  const json fields = json::from_cbor(bytes);
  News news;
  for (const json& telling : fields.at(0)) news.requests.push_back(from_json(telling));
  news.joins = fields.at(1);
  news.departs = static_cast<Departure>(fields.at(2).get<int>());
  news.waits_for = fields.at(3).get<std::vector<std::string>>();
  return news;
}

}  // namespace farandole
