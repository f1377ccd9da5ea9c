// SPDX-License-Identifier: Apache-2.0
// A user's program that trains a model, built against an installed Farandole.
#include <farandole/trainer/loss.h>
#include <farandole/trainer/model.h>
#include <farandole/trainer/optimizer.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  farandole::trainer::Model<float> model({28, 28, 1}, farandole::trainer::layers_of<float>("mlp"));
  model.initialize(1);
  std::printf("%zu parameters\n", model.parameters().size());
  if (model.parameters().size() != 784 * 128 + 128 + 128 * 10 + 10) return 1;
  // Loss and norm of a training loop of one's own.
  farandole::trainer::Tensor<double> logits(1, {2}), gradient;
  logits.data()[0] = 1;
  logits.data()[1] = 2;
  const std::vector<std::int32_t> label{1};
  const double loss = farandole::trainer::softmax_cross_entropy<double>(logits, label, 1.0, &gradient);
  const double norm = farandole::trainer::global_norm<double>(gradient.host());
  std::printf("loss %.6f, norm of its gradient %.6f\n", loss, norm);
  const double wrong = 1 / (1 + std::exp(1.0));  // the probability of the other class
  return std::abs(loss + std::log(1 - wrong)) < 1e-12 && std::abs(norm - std::sqrt(2.0) * wrong) < 1e-12 ? 0 : 1;
}
