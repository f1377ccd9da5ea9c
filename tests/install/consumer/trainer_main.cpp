// SPDX-License-Identifier: Apache-2.0
// The same for the trainer.
#include <farandole/trainer/model.h>

#include <cstdio>

int main() {
  farandole::trainer::Model<float> model({28, 28, 1}, farandole::trainer::layers_of<float>("mlp"));
  model.initialize(1);
  std::printf("%zu parameters\n", model.parameters().size());
  return model.parameters().size() == 784 * 128 + 128 + 128 * 10 + 10 ? 0 : 1;
}
