// SPDX-License-Identifier: Apache-2.0
// Small nets with all built-in layers, and what trainings on devices share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "farandole/collectives/communicator.h"
#include "farandole/trainer/layers.h"
#include "small_training.h"
#include "trainer_files.h"

namespace farandole::trainer::test {

/// As options_for, without threads of OpenMP: the thread sanitizer does not know how they wait for each other.
inline TrainerOptions one_thread(std::int64_t steps) {
  TrainerOptions options = options_for(steps);
  options.kernel_threads = 1;
  return options;
}

template <class Scalar>
LayerList<Scalar> small_cnn() {
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 4, .padding = 1}); }, relu<Scalar>,
                         [] { return max_pool2d<Scalar>(2); }, [] { return conv2d<Scalar>({.channels = 3}); },
                         gelu<Scalar>, [] { return dropout<Scalar>(0.2); }, flatten<Scalar>,
                         [] { return dense<Scalar>(kClasses); }});
}

/// A small residual net with batch normalisation.
template <class Scalar>
LayerList<Scalar> small_residual_net(bool synchronized = false) {
  const auto normalization = [=] { return batch_normalization<Scalar>({.synchronized = synchronized}); };
  const auto convolution = [] { return conv2d<Scalar>({.channels = 4, .padding = 1, .bias = false}); };
  LayerList<Scalar> list = layers<Scalar>({convolution, normalization, relu<Scalar>});
  list.push_back(
      residual<Scalar>(layers<Scalar>({convolution, normalization, relu<Scalar>, convolution, normalization}), {}));
  for (auto& layer :
       layers<Scalar>({relu<Scalar>, global_average_pool<Scalar>, [] { return dense<Scalar>(kClasses); }})) {
    list.push_back(std::move(layer));
  }
  return list;
}

/// Blocks of a transformer on rows of an image.
template <class Scalar>
LayerList<Scalar> small_transformer() {
  LayerList<Scalar> list = layers<Scalar>({[] {
                                             return reshape<Scalar>({8, 8});
                                           },
                                           [] { return positional_encoding<Scalar>(PositionalEncoding::kSinusoidal); },
                                           [] { return positional_encoding<Scalar>(PositionalEncoding::kLearned); }});
  list.push_back(residual<Scalar>(layers<Scalar>({[] { return layer_normalization<Scalar>(); },
                                                  [] { return attention<Scalar>({.heads = 2, .causal = true}); }}),
                                  {}));
  for (auto& layer : layers<Scalar>({[] { return rms_normalization<Scalar>(); },
                                     [] { return dense<Scalar>(6, {.per_position = true}); }, silu<Scalar>,
                                     [] { return group_normalization<Scalar>(2); }, flatten<Scalar>,
                                     [] { return dense<Scalar>(kClasses); }})) {
    list.push_back(std::move(layer));
  }
  return list;
}

/// A net with the other layers for images: pooling with padding, depthwise convolution, upsampling.
template <class Scalar>
LayerList<Scalar> small_image_net() {
  return layers<Scalar>({[] { return conv2d<Scalar>({.channels = 6, .padding = 1}); }, relu<Scalar>,
                         [] { return max_pool2d<Scalar>({.size = 3, .stride = 2, .padding = 1}); },
                         [] { return depthwise_conv2d<Scalar>({.padding = 1}); }, [] { return upsample2d<Scalar>(2); },
                         [] { return depthwise_conv2d<Scalar>({.stride = 2}); },
                         [] { return average_pool2d<Scalar>({.size = 2, .stride = 1, .padding = 1}); }, flatten<Scalar>,
                         [] { return dense<Scalar>(kClasses); }});
}

/// A layer of a program that knows nothing of devices.
class HostLayer final : public Layer<float> {
 public:
  static std::unique_ptr<Layer<float>> make() { return std::make_unique<HostLayer>(); }
  std::string name() const override { return "of the host"; }
  Shape prepare(const Shape& input) override { return input; }
  void forward(const Pass&, const Tensor<float>& input, Tensor<float>& output) override {
    std::ranges::copy(input.host(), output.host().begin());
  }
  void backward(const Pass&, const Tensor<float>&, const Tensor<float>&, const Tensor<float>& output_gradient,
                Tensor<float>* input_gradient) override {
    if (input_gradient != nullptr) std::ranges::copy(output_gradient.host(), input_gradient->host().begin());
  }
};

/// Rank 0's directory, for all ranks.
inline std::filesystem::path of_rank_zero(Communicator& ranks, const TemporaryDirectory& directory) {
  std::string path = directory.path().string();
  path.resize(1000);
  ranks.broadcast(BufferView(path.data(), path.size(), DType::kU8), 0);
  return path.c_str();  // up to the first zero
}

}  // namespace farandole::trainer::test
