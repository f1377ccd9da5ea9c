// SPDX-License-Identifier: Apache-2.0
// Prediction in a program of its own, without a job, data or optimizer: reads the parameters that regression.cpp has
// written, and predicts sines.
//
//   predict FILE [NUMBER]...
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "farandole/trainer/parameters.h"
#include "sine_network.h"

using namespace farandole::trainer;

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: predict FILE [NUMBER]...\n");
    return 2;
  }
  Model<float> model = sine_network();
  load_parameters(argv[1], model);  // or a directory of checkpoints
  std::vector<float> numbers{-2, 0, 1};
  if (argc > 2) numbers.clear();
  for (int i = 2; i < argc; ++i) numbers.push_back(std::strtof(argv[i], nullptr));

  Tensor<float> inputs(static_cast<std::int64_t>(numbers.size()), {1});
  std::copy(numbers.begin(), numbers.end(), inputs.data());
  const Tensor<float>& outputs = model.forward({}, inputs);  // one row for each number
  bool is_near = true;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::printf("sin(%5.2f) = %6.3f, predicted %6.3f\n", numbers[i], std::sin(numbers[i]), outputs.data()[i]);
    is_near = is_near && std::abs(std::sin(numbers[i]) - outputs.data()[i]) < 0.15F;
  }
  return is_near ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "predict: %s\n", error.what());
  return 1;
}
