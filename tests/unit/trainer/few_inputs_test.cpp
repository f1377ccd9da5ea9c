// SPDX-License-Identifier: Apache-2.0
// Convolutions of images with few channels: against Eigen in double, for any number of threads, and when they are
// chosen.
#include <omp.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "convolution_results.h"
#include "kernels/kernels.h"
#include "sanitizers.h"

namespace farandole::trainer {
namespace {

struct FewInputsCase {
  std::int64_t samples;
  Shape input;
  KernelWindow window;
  std::int64_t channels;
};

const FewInputsCase kFewInputsCases[] = {
    {41, {28, 28, 1}, {3, 1, 0}, 32},  // several groups of samples, the last one smaller
    {9, {16, 18, 3}, {3, 1, 1}, 64},  {3, {21, 17, 3}, {7, 2, 3}, 24},  // an odd number of blocks
    {2, {9, 5, 2}, {4, 3, 2}, 8},     {5, {5, 6, 4}, {5, 1, 0}, 40},    // one row of two positions
    {1, {1, 1, 1}, {1, 1, 0}, 16},                                      // one tap
};

ConvolutionGeometry geometry_of(const FewInputsCase& c) {
  ConvolutionGeometry geometry = convolution_geometry("test", c.input, c.window);
  geometry.channels = c.channels;
  return geometry;
}

std::string describe(const FewInputsCase& c) {
  return std::to_string(c.samples) + " x " + trainer::describe(c.input) + " to " + std::to_string(c.channels) +
         " channels, kernel " + std::to_string(c.window.kernel) + ", seed " + std::to_string(kTestSeed);
}

ConvolutionResults<float> by_own_kernels(const FewInputsCase& c, std::int64_t first, std::int64_t count,
                                         bool input_gradient) {
  const ConvolutionGeometry g = geometry_of(c);
  return results_of(*few_inputs_convolution(g), g, ConvolutionValues<float>(g, c.samples), first, count,
                    input_gradient);
}

class FewInputsConvolutions : public testing::Test {
 protected:
  void SetUp() override {
    if (!few_inputs_can_compute(geometry_of(kFewInputsCases[0]))) GTEST_SKIP() << "needs AVX2 and FMA";
  }
  ~FewInputsConvolutions() override { omp_set_num_threads(former_threads_); }

  const int former_threads_ = omp_get_max_threads();
};

// The tolerance is that of Conv2d.LibrariesAgreeToRounding.
TEST_F(FewInputsConvolutions, AgreeWithEigenInDouble) {
  for (const FewInputsCase& c : kFewInputsCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    ASSERT_TRUE(few_inputs_can_compute(g));
    const auto exact =
        results_of(*eigen_convolution<double>(g), g, ConvolutionValues<double>(g, c.samples), 0, c.samples);
    for (const bool input_gradient : {true, false}) {
      const auto results = by_own_kernels(c, 0, c.samples, input_gradient);
      EXPECT_LT(error_of(results.output, exact.output), 7e-5);
      EXPECT_LT(error_of(results.weight_gradient, exact.weight_gradient), 7e-5);
      EXPECT_LT(error_of(results.bias_gradient, exact.bias_gradient), 7e-5);
      if (input_gradient) {
        EXPECT_LT(error_of(results.input_gradient, exact.input_gradient), 7e-5);
      }
    }
  }
}

// ThreadSanitizer does not see how OpenMP orders its threads.
TEST_F(FewInputsConvolutions, BitsDoNotDependOnThreads) {
  if (farandole::test::kThreadSanitizer) GTEST_SKIP() << "OpenMP is not instrumented";
  for (const FewInputsCase& c : kFewInputsCases) {
    SCOPED_TRACE(describe(c));
    omp_set_num_threads(1);
    const auto expected = by_own_kernels(c, 0, c.samples, false);
    for (const int threads : {2, 3, 40}) {
      omp_set_num_threads(threads);
      const auto results = by_own_kernels(c, 0, c.samples, false);
      EXPECT_EQ(results.output, expected.output) << threads << " threads";
      EXPECT_EQ(results.weight_gradient, expected.weight_gradient) << threads << " threads";
      EXPECT_EQ(results.bias_gradient, expected.bias_gradient) << threads << " threads";
    }
  }
}

TEST_F(FewInputsConvolutions, SamplesDoNotDependOnTheirNeighbours) {
  for (const FewInputsCase& c : kFewInputsCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    const auto together = by_own_kernels(c, 0, c.samples, false);
    for (std::int64_t sample = 0; sample < c.samples; sample += 3) {
      const auto alone = by_own_kernels(c, sample, 1, false);
      EXPECT_TRUE(std::equal(alone.output.begin(), alone.output.end(),
                             together.output.begin() + sample * g.output_positions() * g.channels))
          << "output of sample " << sample;
    }
  }
}

TEST_F(FewInputsConvolutions, WithAReluHaveTheBitsOfTwoPasses) {
  for (const FewInputsCase& c : kFewInputsCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    expect_bits_of_two_passes(*few_inputs_convolution(g), g, c.samples);
  }
}

TEST_F(FewInputsConvolutions, BiasCanBeLeftOut) {
  const FewInputsCase c = kFewInputsCases[1];
  const ConvolutionGeometry g = geometry_of(c);
  ConvolutionValues<float> values(g, c.samples);
  std::fill(values.bias.begin(), values.bias.end(), 0.0F);
  const auto convolution = few_inputs_convolution(g);
  const auto expected = results_of(*convolution, g, values, 0, c.samples, false);
  std::vector<float> output(expected.output.size()), weight_gradient(expected.weight_gradient.size());
  Workspace workspace;
  convolution->forward(workspace, c.samples, values.input.data(), values.weights.data(), nullptr, output.data());
  convolution->backward(workspace, c.samples, values.input.data(), values.weights.data(), values.output_gradient.data(),
                        weight_gradient.data(), nullptr, nullptr);
  EXPECT_EQ(output, expected.output);
  EXPECT_EQ(weight_gradient, expected.weight_gradient);
}

// trainer_convolutions_avx2 runs this test with oneDNN limited to AVX2.
TEST_F(FewInputsConvolutions, AreChosenIfOneDnnHasNoAvx512) {
  const FewInputsCase c = kFewInputsCases[1];
  const ConvolutionGeometry g = geometry_of(c);
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (limit != nullptr && std::string_view(limit) == "AVX2") {
    EXPECT_TRUE(few_inputs_is_faster(g));
  }
  for (const auto& [member, value] : {std::pair{&ConvolutionGeometry::inputs, std::int64_t{5}},
                                      std::pair{&ConvolutionGeometry::kernel, std::int64_t{10}},
                                      std::pair{&ConvolutionGeometry::channels, std::int64_t{12}}}) {
    ConvolutionGeometry other = g;
    other.*member = value;
    EXPECT_FALSE(few_inputs_can_compute(other));
    EXPECT_FALSE(few_inputs_is_faster(other));
  }
  const ConvolutionValues<float> values(g, c.samples);
  const auto own = by_own_kernels(c, 0, c.samples, false);
  const auto equals_own = [&](ConvolutionLibrary library) {
    const auto convolution = host_kernels<float>().convolution(g, {.library = library, .winograd = true});
    const auto results = results_of(*convolution, g, values, 0, c.samples, false);
    return results.output == own.output && results.weight_gradient == own.weight_gradient;
  };
  EXPECT_EQ(equals_own(ConvolutionLibrary::kAutomatic), few_inputs_is_faster(g));
  EXPECT_FALSE(equals_own(ConvolutionLibrary::kOneDnn));
  EXPECT_FALSE(equals_own(ConvolutionLibrary::kEigen));
}

}  // namespace
}  // namespace farandole::trainer
