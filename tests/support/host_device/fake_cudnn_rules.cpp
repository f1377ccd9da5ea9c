// SPDX-License-Identifier: Apache-2.0
// The attributes of the descriptors that the double of cuDNN's graph API knows.
#include <algorithm>
#include <array>

#include "fake_cudnn_descriptor.h"

namespace farandole::fake::cudnn {
namespace {

/// An attribute of a kind of descriptor.
struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  std::int64_t least, most;                 ///< numbers of values; `least` 0: may be missing
  cudnnBackendDescriptorType_t value = -1;  ///< kind of the descriptors that are the values
};
constexpr std::int64_t kMany = 1000;

#define FARANDOLE_TENSOR(owner, name, least)                                              \
  Rule {                                                                                  \
    owner, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, least, 1, CUDNN_BACKEND_TENSOR_DESCRIPTOR \
  }
constexpr std::array kRules{
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1},
    Rule{CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 0, 1},
    Rule{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
    Rule{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1},
    Rule{CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 0, 1},
    Rule{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 0),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 0),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 1),
    Rule{CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    Rule{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         1, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1),
    Rule{CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1},
    Rule{CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    Rule{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 1),
    FARANDOLE_TENSOR(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 1),
    Rule{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    Rule{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         kMany},
    Rule{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         1, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    Rule{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    Rule{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    Rule{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
    Rule{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, kMany},
    Rule{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, kMany},
    Rule{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1},
};
#undef FARANDOLE_TENSOR

}  // namespace

bool is_attribute(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count) {
  const auto* const rule =
      std::ranges::find_if(kRules, [&](const Rule& known) { return known.of == of && known.name == name; });
  return rule != kRules.end() && rule->type == type && count >= std::max<std::int64_t>(rule->least, 1) &&
         count <= rule->most;
}

std::size_t bytes_of_attribute(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return sizeof(int);
  }
}

std::string missing(const char* call, const Descriptor& descriptor) {
  for (const Rule& rule : kRules) {
    if (rule.of != descriptor.type) continue;
    const auto found = descriptor.attributes.find(rule.name);
    if (found == descriptor.attributes.end()) {
      if (rule.least == 0) continue;
      return fmt::format("descriptor {} lacks attribute {}", descriptor.type, rule.name);
    }
    if (rule.type != CUDNN_TYPE_BACKEND_DESCRIPTOR) continue;
    for (void* const value : descriptor.all<void*>(rule.name)) {
      const auto* const object = object_of<Descriptor>(call, value);
      if (object == nullptr || !object->is_final || (rule.value >= 0 && object->type != rule.value)) {
        return fmt::format("attribute {} is a descriptor of another kind, or not finalized", rule.name);
      }
    }
  }
  return "";
}

}  // namespace farandole::fake::cudnn
