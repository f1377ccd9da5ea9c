// SPDX-License-Identifier: Apache-2.0
// Descriptors of the double of cuDNN's graph API, and the attributes that they have.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_cudnn_graph.h"

namespace farandole::fake::cudnn {

enum class Engine : std::uint8_t { kNondeterministic, kBroken, kGood };

struct Descriptor : Handle {
  static constexpr Kind kKind = Kind::kCudnnBackend;
  explicit Descriptor(cudnnBackendDescriptorType_t kind) : Handle(kKind), type(kind) {}

  template <class T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  T one(cudnnBackendAttributeName_t name, T missing = {}) const {
    const std::vector<T> values = all<T>(name);
    return values.empty() ? missing : values.front();
  }
  std::vector<const Descriptor*> descriptors(cudnnBackendAttributeName_t name) const {
    std::vector<const Descriptor*> result;
    for (void* const value : all<void*>(name)) result.push_back(static_cast<const Descriptor*>(value));
    return result;
  }

  const cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, std::vector<unsigned char>> attributes;
  std::shared_ptr<const Graph> graph;  ///< of a graph, and what is made from it
  Engine engine{};                     ///< of an engine, a configuration and a plan
};

/// True if a descriptor has an attribute of this type, with so many values.
bool is_attribute(cudnnBackendDescriptorType_t of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  std::int64_t count);
std::size_t bytes_of_attribute(cudnnBackendAttributeType_t type);
/// Returns why a descriptor cannot be finalized: what it lacks; "" if nothing.
std::string missing(const char* call, const Descriptor& descriptor);

}  // namespace farandole::fake::cudnn
