// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "farandole/core/error.h"

namespace farandole::trainer {
namespace {

template <class Scalar>
void append(LayerList<Scalar>& list, LayerList<Scalar> more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

template <class Scalar>
LayerList<Scalar> mlp(const ModelOptions& options) {
  return layers<Scalar>(dense<Scalar>(128), relu<Scalar>(), dense<Scalar>(options.classes));
}

template <class Scalar>
LayerList<Scalar> cnn(const ModelOptions& options, bool normalized) {
  LayerList<Scalar> list;
  for (const std::int64_t channels : {32, 64}) {
    list.push_back(conv2d<Scalar>({.channels = channels}));
    if (normalized) {
      list.push_back(batch_normalization<Scalar>({.synchronized = options.synchronized_batch_normalization}));
    }
    list.push_back(relu<Scalar>());
  }
  append(list, layers<Scalar>(max_pool2d<Scalar>(2), dense<Scalar>(128), relu<Scalar>()));
  if (normalized) list.push_back(dropout<Scalar>(0.25));
  list.push_back(dense<Scalar>(options.classes));
  return list;
}

/// The parts of a residual net. A basic block has two 3x3 convolutions; a bottleneck block has a 1x1, a 3x3 and a 1x1
/// convolution, of which the last has four times the channels.
template <class Scalar>
class ResidualNet {
 public:
  ResidualNet(const ModelOptions& options, bool bottleneck) : options_(options), bottleneck_(bottleneck) {}

  /// @param blocks  number of blocks of each of the four stages
  LayerList<Scalar> net(const std::vector<int>& blocks) {
    LayerList<Scalar> list = stem();
    std::int64_t width = 64;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
      for (int block = 0; block < blocks[stage]; ++block) {
        append(list, this->block(width, stage > 0 && block == 0 ? 2 : 1));
      }
    }
    append(list, layers<Scalar>(global_average_pool<Scalar>(), dense<Scalar>(options_.classes)));
    return list;
  }

 private:
  /// Convolution, as large as its input at stride 1, and normalisation.
  LayerList<Scalar> convolution(std::int64_t channels, std::int64_t kernel, std::int64_t stride) const {
    return layers<Scalar>(
        conv2d<Scalar>(
            {.channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false}),
        batch_normalization<Scalar>({.synchronized = options_.synchronized_batch_normalization}));
  }

  LayerList<Scalar> stem() {
    constexpr std::int64_t kMaxSmallImage = 64;
    const bool is_small = std::max(options_.input[0], options_.input[1]) <= kMaxSmallImage;
    LayerList<Scalar> list = is_small ? convolution(64, 3, 1) : convolution(64, 7, 2);
    list.push_back(relu<Scalar>());
    if (!is_small) list.push_back(max_pool2d<Scalar>({.size = 3, .stride = 2, .padding = 1}));
    channels_ = 64;
    return list;
  }

  LayerList<Scalar> block(std::int64_t width, std::int64_t stride) {
    const std::int64_t channels = bottleneck_ ? 4 * width : width;
    LayerList<Scalar> body = bottleneck_ ? convolution(width, 1, 1) : convolution(width, 3, stride);
    body.push_back(relu<Scalar>());
    if (bottleneck_) {
      append(body, convolution(width, 3, stride));
      body.push_back(relu<Scalar>());
    }
    append(body, bottleneck_ ? convolution(channels, 1, 1) : convolution(channels, 3, 1));
    LayerList<Scalar> shortcut;
    if (stride > 1 || channels != channels_) shortcut = convolution(channels, 1, stride);
    channels_ = channels;
    return layers<Scalar>(residual<Scalar>(std::move(body), std::move(shortcut)), relu<Scalar>());
  }

  const ModelOptions& options_;
  const bool bottleneck_;
  std::int64_t channels_ = 0;  ///< of the last block
};

template <class Scalar>
LayerList<Scalar> gpt(const ModelOptions& options) {
  const DenseOptions per_position{.per_position = true};
  LayerList<Scalar> list = layers<Scalar>(embedding<Scalar>(options.vocabulary, options.units),
                                          positional_encoding<Scalar>(PositionalEncoding::kLearned));
  const auto with_dropout = [&](LayerList<Scalar> branch) {
    if (options.dropout > 0) branch.push_back(dropout<Scalar>(options.dropout));
    return branch;
  };
  list = with_dropout(std::move(list));
  for (std::int64_t block = 0; block < options.blocks; ++block) {
    list.push_back(residual<Scalar>(with_dropout(
        layers<Scalar>(layer_normalization<Scalar>(), attention<Scalar>({.heads = options.heads, .causal = true})))));
    list.push_back(residual<Scalar>(
        with_dropout(layers<Scalar>(layer_normalization<Scalar>(), dense<Scalar>(4 * options.units, per_position),
                                    gelu<Scalar>(), dense<Scalar>(options.units, per_position)))));
  }
  append(list, layers<Scalar>(layer_normalization<Scalar>(), dense<Scalar>(options.vocabulary, per_position)));
  return list;
}

void check_images(const std::string& model, const ModelOptions& options) {
  if (options.input.size() == 3) return;
  throw InvalidArgument(fmt::format("model {}: expects images {{height, width, channels}}, the input is {}", model,
                                    describe(options.input)));
}

}  // namespace

std::vector<std::string> model_names() {
  return {"mlp", "cnn", "cnn_bn", "resnet18", "resnet50", "gpt"};
}

template <class Scalar>
LayerList<Scalar> layers_of(const std::string& model, const ModelOptions& options) {
  if (model == "mlp") return mlp<Scalar>(options);
  if (model == "cnn") return cnn<Scalar>(options, false);
  if (model == "cnn_bn") return cnn<Scalar>(options, true);
  if (model == "gpt") return gpt<Scalar>(options);
  if (model == "resnet18" || model == "resnet50") check_images(model, options);
  if (model == "resnet18") return ResidualNet<Scalar>(options, false).net({2, 2, 2, 2});
  if (model == "resnet50") return ResidualNet<Scalar>(options, true).net({3, 4, 6, 3});
  throw InvalidArgument(
      fmt::format("no model is named '{}'; expected one of {}", model, fmt::join(model_names(), ", ")));
}
template LayerList<float> layers_of<float>(const std::string&, const ModelOptions&);
template LayerList<double> layers_of<double>(const std::string&, const ModelOptions&);

}  // namespace farandole::trainer
