// SPDX-License-Identifier: Apache-2.0
// Convolution by oneDNN, in f32: Winograd's algorithm F(4x4, 3x3) where that applies (Lavin, Gray, CVPR 2016),
// otherwise the direct algorithm. The caller's images are channels last; images or weights are converted if the
// algorithm needs another form. A batch is computed in chunks of samples that stay in cache between conversion and
// product; weight gradients of chunks are added in order. Primitives are kept for each number of samples in a chunk.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "convolution.h"
#include "full_teams.h"
#include "onednn.h"
#include "vectorized.h"

namespace farandole::trainer {
namespace {

using dnnl::memory;
using Form = memory::desc;

memory unbound(const Form& form) {
  return {form, onednn_engine(), DNNL_MEMORY_NONE};
}

/// Binds memory that primitives only read; oneDNN's handles are not const.
void bind(memory& where, const float* values) {
  where.set_data_handle(const_cast<float*>(values));
}

/// A primitive and its memory objects.
struct Step {
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

/// Primitives and memory objects for a certain number of samples. Memory objects are shared handles: setting the
/// address of a member of the plan sets the address in all steps that use the member.
struct Plan {
  memory input, weights, bias, output;  ///< in the caller's form; in backward, `output` is the output's gradient
  memory input_gradient, weight_gradient, bias_gradient;
  std::vector<Step> forward, backward_parameters, backward_input;
};

/// Adds the steps of a product to a plan: conversions of inputs, the product, conversions of outputs.
class StepWriter {
 public:
  explicit StepWriter(std::vector<Step>& steps) : steps_(steps) {
    // oneDNN's own scratch memory belongs to a thread, but a model must be usable from another thread.
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  /// Declares an input, and converts it if the product wants another form. Sets `packed` to the memory that the product
  /// reads: `plain` itself, or memory for the converted values, which is allocated if necessary.
  void reads(int argument, memory& plain, const Form& wanted, memory& packed) {
    if (place(argument, plain, wanted, packed)) convert(steps_, plain, packed);
  }
  void writes(int argument, memory& plain, const Form& wanted, memory& packed) {
    if (place(argument, plain, wanted, packed)) convert(conversions_after_, packed, plain);
  }
  /// Declares an input that an earlier product of the same call has converted.
  void reads_converted(int argument, const memory& values) { arguments_.emplace(argument, values); }

  void run(const dnnl::primitive& primitive, const Form& scratch) {
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, unbound(scratch));
    steps_.push_back({primitive, std::move(arguments_)});
    for (Step& step : conversions_after_) steps_.push_back(std::move(step));
  }

 private:
  bool place(int argument, memory& plain, const Form& wanted, memory& packed) {
    const bool converted = wanted != plain.get_desc();
    if (!converted) {
      packed = plain;
    } else if (!packed || packed.get_desc() != wanted || packed.get_data_handle() == nullptr) {
      packed = memory(wanted, onednn_engine());
    }
    arguments_.emplace(argument, packed);
    return converted;
  }

  void convert(std::vector<Step>& steps, const memory& from, const memory& to) {
    const dnnl::engine& engine = onednn_engine();
    const dnnl::reorder::primitive_desc reorder(engine, from.get_desc(), engine, to.get_desc(), attributes_);
    steps.push_back(
        {dnnl::reorder(reorder),
         {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, unbound(reorder.scratchpad_desc())}}});
  }

  std::vector<Step>& steps_;
  std::vector<Step> conversions_after_;
  std::unordered_map<int, memory> arguments_;
  dnnl::primitive_attr attributes_;
};

/// Descriptions of the three products (output, gradients of parameters, gradient of the input) by one algorithm. Not
/// complete if oneDNN does not have the algorithm for this processor and these shapes.
struct Descriptions {
  dnnl::convolution_forward::primitive_desc forward;
  dnnl::convolution_backward_weights::primitive_desc backward_parameters;
  dnnl::convolution_backward_data::primitive_desc backward_input;
  bool complete = false;
};

class OneDnnConvolution final : public Convolution<float> {
 public:
  OneDnnConvolution(const ConvolutionGeometry& geometry, bool winograd)
      : geometry_(geometry),
        winograd_(winograd && geometry.kernel == 3 && geometry.stride == 1 && geometry.inputs % 16 == 0 &&
                  geometry.channels % 16 == 0),
        chunk_(samples_per_chunk()),
        no_bias_(static_cast<std::size_t>(geometry.channels)),
        stream_(onednn_engine()) {}

  void forward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights, const float* bias,
               float* output) override {
    with_onednn(describe("forward"), [&] {
      for_each_chunk(samples, [&](std::int64_t first, Plan& plan) {
        bind(plan.input, input + first * geometry_.input_elements());
        bind(plan.weights, weights);
        bind(plan.bias, bias != nullptr ? bias : no_bias_.data());
        bind(plan.output, output + first * output_elements());
        run(plan.forward, workspace);
      });
    });
  }

  void backward(Workspace& workspace, std::int64_t samples, const float* input, const float* weights,
                const float* output_gradient, float* weight_gradient, float* bias_gradient,
                float* input_gradient) override {
    with_onednn(describe("backward"), [&] {
      // Gradients over a chunk, where there are several.
      Workspace::Scope scope(workspace);
      const bool has_chunks = samples > chunk_;
      const auto partial_weights = scope.take<float>(has_chunks ? static_cast<std::size_t>(weight_elements()) : 0);
      const auto partial_bias = scope.take<float>(has_chunks ? no_bias_.size() : 0);
      float* const bias_sum = bias_gradient != nullptr ? bias_gradient : scope.take<float>(no_bias_.size()).data();
      for_each_chunk(samples, [&](std::int64_t first, Plan& plan) {
        bind(plan.input, input + first * geometry_.input_elements());
        bind(plan.output, output_gradient + first * output_elements());
        bind(plan.weight_gradient, first == 0 ? weight_gradient : partial_weights.data());
        bind(plan.bias_gradient, first == 0 ? bias_sum : partial_bias.data());
        run(plan.backward_parameters, workspace);
        if (first > 0) {
          add(partial_weights.host(), weight_gradient);
          add(partial_bias.host(), bias_sum);
        }
        if (input_gradient == nullptr) return;
        bind(plan.weights, weights);
        bind(plan.input_gradient, input_gradient + first * geometry_.input_elements());
        run(plan.backward_input, workspace);
      });
    });
  }

 private:
  std::string describe(const char* pass) const {
    const ConvolutionGeometry& g = geometry_;
    return fmt::format("conv2d {0}x{0}, {1} to {2} channels, images of {3}x{4}, {5}", g.kernel, g.inputs, g.channels,
                       g.height, g.width, pass);
  }

  std::int64_t output_elements() const { return geometry_.output_positions() * geometry_.channels; }
  std::int64_t weight_elements() const { return geometry_.patch_elements() * geometry_.channels; }

  /// Number of samples per chunk. Input and output of a chunk about fill the cache of a core. Chunks are larger if the
  /// weights are large, because the weights are transformed once per chunk. The number depends on the geometry only, so
  /// that the order of additions does, too.
  std::int64_t samples_per_chunk() const {
    constexpr std::int64_t kCacheElements = std::int64_t{1} << 20;
    constexpr std::int64_t kImagesPerWeight = 16;
    const std::int64_t elements = std::max(kCacheElements, kImagesPerWeight * weight_elements());
    return std::max<std::int64_t>(elements / (geometry_.input_elements() + output_elements()), 1);
  }

  /// Calls `compute` with the first sample of each chunk and the plan for its size.
  template <class Compute>
  void for_each_chunk(std::int64_t samples, const Compute& compute) {
    for (std::int64_t first = 0; first < samples; first += chunk_) {
      const std::int64_t count = std::min(chunk_, samples - first);
      if (!plans_.contains(count)) {
        if (plans_.size() >= kMaxPlans) plans_.clear();
        plans_.emplace(count, make_plan(count));
      }
      compute(first, plans_.at(count));
    }
  }

  static void add(std::span<const float> from, float* to) {
    const std::size_t count = from.size();
    const float* values = from.data();
    vectorized([=]() FARANDOLE_INLINED {
      const float* __restrict x = values;
      float* __restrict sum = to;
      for (std::size_t i = 0; i < count; ++i) sum[i] += x[i];
    });
  }

  Form image_form(std::int64_t samples, bool output, memory::format_tag tag) const {
    const ConvolutionGeometry& g = geometry_;
    return output ? Form({samples, g.channels, g.output_height, g.output_width}, memory::data_type::f32, tag)
                  : Form({samples, g.inputs, g.height, g.width}, memory::data_type::f32, tag);
  }
  Form weight_form(memory::format_tag tag) const {
    const ConvolutionGeometry& g = geometry_;
    return {{g.channels, g.inputs, g.kernel, g.kernel}, memory::data_type::f32, tag};
  }
  Form bias_form() const { return {{geometry_.channels}, memory::data_type::f32, memory::format_tag::x}; }

  Descriptions describe_products(std::int64_t samples, dnnl::algorithm algorithm, memory::format_tag images) const {
    const dnnl::engine& engine = onednn_engine();
    const Form input = image_form(samples, false, images), output = image_form(samples, true, images);
    const Form weights = weight_form(memory::format_tag::any), bias = bias_form();
    const memory::dims strides{geometry_.stride, geometry_.stride}, padding{geometry_.padding, geometry_.padding};
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    constexpr bool kAllowEmpty = true;

    Descriptions all;
    all.forward = {
        {dnnl::prop_kind::forward_training, algorithm, input, weights, bias, output, strides, padding, padding},
        attributes,
        engine,
        kAllowEmpty};
    if (!all.forward) return all;
    all.backward_parameters = {{algorithm, input, weights, bias, output, strides, padding, padding},
                               attributes,
                               engine,
                               all.forward,
                               kAllowEmpty};
    all.backward_input = {
        {algorithm, input, weights, output, strides, padding, padding}, attributes, engine, all.forward, kAllowEmpty};
    all.complete = all.backward_parameters && all.backward_input;
    return all;
  }

  Descriptions describe_products(std::int64_t samples) const {
    if (winograd_) {
      Descriptions winograd =
          describe_products(samples, dnnl::algorithm::convolution_winograd, memory::format_tag::any);
      if (winograd.complete) return winograd;
    }
    Descriptions direct = describe_products(samples, dnnl::algorithm::convolution_direct, memory::format_tag::nhwc);
    if (!direct.complete) throw Unsupported(describe("oneDNN has no algorithm; use ConvolutionLibrary::kEigen"));
    return direct;
  }

  Plan make_plan(std::int64_t samples) const {
    const Descriptions products = describe_products(samples);
    Plan plan;
    plan.input = unbound(image_form(samples, false, memory::format_tag::nhwc));
    plan.output = unbound(image_form(samples, true, memory::format_tag::nhwc));
    plan.weights = unbound(weight_form(memory::format_tag::hwio));
    plan.bias = unbound(bias_form());
    plan.input_gradient = unbound(plan.input.get_desc());
    plan.weight_gradient = unbound(plan.weights.get_desc());
    plan.bias_gradient = unbound(bias_form());

    memory packed_input, packed_output, packed_weights, packed_weight_gradient;
    {
      const auto& product = products.forward;
      StepWriter steps(plan.forward);
      steps.reads(DNNL_ARG_SRC, plan.input, product.src_desc(), packed_input);
      steps.reads(DNNL_ARG_WEIGHTS, plan.weights, product.weights_desc(), packed_weights);
      steps.reads_converted(DNNL_ARG_BIAS, plan.bias);
      steps.writes(DNNL_ARG_DST, plan.output, product.dst_desc(), packed_output);
      steps.run(dnnl::convolution_forward(product), product.scratchpad_desc());
    }
    {
      const auto& product = products.backward_parameters;
      StepWriter steps(plan.backward_parameters);
      steps.reads(DNNL_ARG_SRC, plan.input, product.src_desc(), packed_input);
      steps.reads(DNNL_ARG_DIFF_DST, plan.output, product.diff_dst_desc(), packed_output);
      steps.writes(DNNL_ARG_DIFF_WEIGHTS, plan.weight_gradient, product.diff_weights_desc(), packed_weight_gradient);
      steps.reads_converted(DNNL_ARG_DIFF_BIAS, plan.bias_gradient);
      steps.run(dnnl::convolution_backward_weights(product), product.scratchpad_desc());
    }
    {
      const auto& product = products.backward_input;
      StepWriter steps(plan.backward_input);
      if (product.diff_dst_desc() == packed_output.get_desc()) {
        steps.reads_converted(DNNL_ARG_DIFF_DST, packed_output);
      } else {
        steps.reads(DNNL_ARG_DIFF_DST, plan.output, product.diff_dst_desc(), packed_output);
      }
      steps.reads(DNNL_ARG_WEIGHTS, plan.weights, product.weights_desc(), packed_weights);
      steps.writes(DNNL_ARG_DIFF_SRC, plan.input_gradient, product.diff_src_desc(), packed_input);
      steps.run(dnnl::convolution_backward_data(product), product.scratchpad_desc());
    }
    return plan;
  }

  void run(std::vector<Step>& steps, Workspace& workspace) {
    const FullTeams full_teams;
    Workspace::Scope scope(workspace);
    std::size_t largest = 0;
    for (Step& step : steps) {
      largest = std::max(largest, step.arguments.at(DNNL_ARG_SCRATCHPAD).get_desc().get_size());
    }
    std::uint8_t* const shared = scope.take<std::uint8_t>(largest).host().data();
    for (Step& step : steps) {
      memory& scratch = step.arguments.at(DNNL_ARG_SCRATCHPAD);
      if (scratch.get_desc().get_size() > 0) scratch.set_data_handle(shared);
      step.primitive.execute(stream_, step.arguments);
    }
    stream_.wait();
  }

  static constexpr std::size_t kMaxPlans = 8;

  const ConvolutionGeometry geometry_;
  const bool winograd_;
  const std::int64_t chunk_;          ///< samples per chunk
  const std::vector<float> no_bias_;  ///< zeros, where there is no bias
  dnnl::stream stream_;
  std::map<std::int64_t, Plan> plans_;
};

}  // namespace

std::unique_ptr<Convolution<float>> onednn_convolution(const ConvolutionGeometry& geometry, bool winograd) {
  return with_onednn("conv2d: start", [&] { return std::make_unique<OneDnnConvolution>(geometry, winograd); });
}

}  // namespace farandole::trainer
