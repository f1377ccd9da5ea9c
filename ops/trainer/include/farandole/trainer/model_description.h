// SPDX-License-Identifier: Apache-2.0
// Models as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farandole/core/export.h"
#include "farandole/trainer/tensor.h"

namespace farandole FARANDOLE_API {
namespace trainer {

/// What a model is made of, as text; checkpoints keep it.
struct ModelDescription {
  Shape input, output;                   ///< of a sample
  std::vector<std::string> layers = {};  ///< a text per layer and operation: "'dense, 10 units', output 10"
  std::int64_t parameters = 0;           ///< number of parameters
  friend bool operator==(const ModelDescription&, const ModelDescription&) = default;
};
/// In one line: "28x28x1 to 10, 101770 parameters, 3 layers ('dense, 128 units', output 128; …)".
std::string describe(const ModelDescription& model);

}  // namespace trainer
}  // namespace FARANDOLE_API
