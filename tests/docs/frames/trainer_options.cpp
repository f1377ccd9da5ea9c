// SPDX-License-Identifier: Apache-2.0
// Options of a training. Only compiled.
#include <cmath>
#include <memory>

#include "farandole/trainer/trainer.h"

using namespace farandole::trainer;

/// An update rule of the program.
class Lion : public UpdateRule<float> {
 public:
  std::string name() const override;
  std::vector<std::string> states() const override;
  void update(VectorView<float> values, VectorView<const float> gradients, std::span<const VectorView<float>> states,
              const UpdateFacts& facts) override;
};

TrainerOptions make_options() {
  TrainerOptions options;
  // BLOCK
  return options;
}
