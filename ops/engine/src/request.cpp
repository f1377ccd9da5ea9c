// SPDX-License-Identifier: Apache-2.0
#include "request.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "farandole/internal/error_classes.h"

namespace farandole {
namespace {

using nlohmann::json;

json to_json(const Announcement& announcement) {
  const RequestSpec& spec = *announcement.spec;
  json tensors = json::array();
  for (const TensorSpec& tensor : spec.tensors) {
    tensors.push_back({static_cast<int>(tensor.dtype), tensor.shape, static_cast<int>(tensor.memory)});
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
          announcement.in_step,
          spec.about,
          spec.by_order};
}

/// Rejects received CBOR that is nested deeper than announcements are (kMaxDepth levels), because the parser recurses
/// once per level and could overflow the stack. Rejects objects, too.
class DepthLimit final : public json::json_sax_t {
 public:
  bool start_array(std::size_t /*size*/) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override { return --depth_ >= 0; }
  bool start_object(std::size_t /*size*/) override { return false; }
  bool end_object() override { return false; }
  bool key(string_t& /*text*/) override { return false; }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*bytes*/) override { return true; }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const json::exception& /*error*/) override {
    return false;
  }

 private:
  static constexpr int kMaxDepth = 6;  // announcement, requests, request, tensors, tensor, shape
  int depth_ = 0;
};

[[noreturn]] void refuse(const std::string& what) {
  throw TransportError("an announcement with " + what);
}

/// Returns a field that must be an integer from `min` to `max`.
template <class Number>
Number integer_in(const json& field, Number min, Number max) {
  const bool fits = field.is_number_unsigned()
                        ? field.get<std::uint64_t>() <= static_cast<std::uint64_t>(max)
                        : field.is_number_integer() && field.get<std::int64_t>() >= static_cast<std::int64_t>(min);
  if (!fits) refuse(fmt::format("{} where a number from {} to {} belongs", field.dump(), min, max));
  return field.get<Number>();
}

/// Returns a field that must be a value of an enumeration from 0 to `last`.
template <class Value>
Value enumerator_in(const json& field, Value last) {
  return static_cast<Value>(integer_in(field, 0, static_cast<int>(last)));
}

TensorSpec tensor_from_json(const json& fields) {
  TensorSpec tensor;
  tensor.dtype = enumerator_in(fields.at(0), DType::kU64);
  for (const json& field : fields.at(1)) tensor.shape.push_back(integer_in(field, std::int64_t{0}, kMaxTensorBytes));
  tensor.memory = enumerator_in(fields.at(2), MemoryKind::kCuda);
  if (!is_possible(tensor.dtype, tensor.shape)) refuse(fmt::format("a tensor [{}]", fmt::join(tensor.shape, ", ")));
  return tensor;
}

Announcement from_json(const json& fields) {
  RequestSpec spec;
  spec.name = fields.at(0);
  spec.kind = enumerator_in(fields.at(1), RequestKind::kRefused);
  spec.op = enumerator_in(fields.at(2), ReduceOp::kBitXor);
  if (!is_reduce_op(spec.op)) refuse(fmt::format("{} where a reduction belongs", fields.at(2).dump()));
  spec.adasum = fields.at(3);
  spec.root = integer_in(fields.at(4), -1, std::numeric_limits<int>::max());
  spec.prescale = fields.at(5);
  spec.postscale = fields.at(6);
  for (const json& tensor : fields.at(7)) spec.tensors.push_back(tensor_from_json(tensor));
  for (const json& field : fields.at(8)) {
    spec.arguments.push_back(integer_in<std::int64_t>(field, 0, std::numeric_limits<int>::max()));
  }
  spec.about = fields.at(10);
  spec.by_order = fields.at(11);
  const bool names_no_set = (spec.kind == RequestKind::kAddSet && spec.arguments.empty()) ||
                            (spec.kind == RequestKind::kRemoveSet && spec.arguments.size() != 1);
  if (names_no_set) refuse("a change of process sets that does not say which");
  return {std::make_shared<RequestSpec>(std::move(spec)), fields.at(9)};
}

std::string describe(const TensorSpec& tensor) {
  const std::string_view where = tensor.memory == MemoryKind::kHost ? "" : " in device memory";
  return fmt::format("{}[{}]{}", name(tensor.dtype), fmt::join(tensor.shape, ", "), where);
}

}  // namespace

std::string_view name(RequestKind kind) {
  constexpr std::array<std::string_view, 9> kNames{"allreduce",       "allgather",          "broadcast",
                                                   "alltoall",        "reduce_scatter",     "barrier",
                                                   "add_process_set", "remove_process_set", "an invalid request"};
  return kNames.at(static_cast<std::size_t>(kind));
}

bool is_possible(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t room = kMaxTensorBytes / static_cast<std::int64_t>(size_in_bytes(dtype));
  for (const std::int64_t length : shape) {
    if (length < 0 || length > room) return false;
    if (length > 0) room /= length;
  }
  return true;
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
  return {kind_of(error), message_of(error)};
}

std::string Announcements::encode() const {
  json specs = json::array();
  for (const Announcement& announcement : requests) specs.push_back(to_json(announcement));
  std::string bytes;
  json::to_cbor(json{std::move(specs), joins, static_cast<int>(departs), waits_for}, bytes);
  return bytes;
}

Announcements Announcements::decode(std::string_view bytes) {
  try {
    DepthLimit limit;
    if (!json::sax_parse(bytes, &limit, json::input_format_t::cbor)) refuse("bytes that cannot be read");
    const json fields = json::from_cbor(bytes);
    Announcements announcements;
    for (const json& announcement : fields.at(0)) announcements.requests.push_back(from_json(announcement));
    announcements.joins = fields.at(1);
    announcements.departs = enumerator_in(fields.at(2), Departure::kSetRemoved);
    announcements.waits_for = fields.at(3).get<std::vector<std::string>>();
    return announcements;
  } catch (const json::exception& error) {
    refuse(fmt::format("bytes that cannot be read: {}", error.what()));
  }
}

}  // namespace farandole
