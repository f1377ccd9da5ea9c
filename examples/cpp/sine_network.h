// SPDX-License-Identifier: Apache-2.0
// The model of regression.cpp and predict.cpp.
#pragma once

#include <utility>

#include "farandole/trainer/layers.h"
#include "farandole/trainer/model.h"

/// Predicts one number from one number.
inline farandole::trainer::Model<float> sine_network() {
  using namespace farandole::trainer;
  LayerList<float> layers;
  layers.push_back(dense<float>(32));
  layers.push_back(relu<float>());
  layers.push_back(dense<float>(32));
  layers.push_back(relu<float>());
  layers.push_back(dense<float>(1));
  return Model<float>({1}, std::move(layers));
}
