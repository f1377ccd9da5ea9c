// SPDX-License-Identifier: Apache-2.0
// A model after its training. Only compiled.
#include <memory>

#include "farandole/trainer/parameters.h"
#include "farandole/trainer/trainer.h"

using namespace farandole::trainer;

void use(farandole::Communicator& ranks, Trainer<float>& trainer, const std::shared_ptr<const Dataset>& data) {
  // BLOCK
}
