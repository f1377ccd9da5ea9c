// SPDX-License-Identifier: Apache-2.0
// Winograd's algorithm of our own: against Eigen in double, for any number of threads, and when it is chosen.
#include <omp.h>

#include <cstdlib>
#include <string_view>

#include "convolution_results.h"
#include "kernels/kernels.h"
#include "sanitizers.h"

namespace farandole::trainer {
namespace {

struct WinogradCase {
  std::int64_t samples, height, width, inputs, channels, padding;
};

const WinogradCase kWinogradCases[] = {
    {40, 26, 26, 32, 64, 0},                                            // several chunks, the last one shorter
    {2, 13, 11, 16, 40, 1},  {3, 7, 9, 48, 16, 2}, {1, 3, 3, 8, 8, 0},  // one position, smaller than a tile
    {5, 3, 5, 24, 8, 1},     {3, 1, 2, 8, 24, 1},  {2, 6, 6, 8, 72, 0},
    {17, 4, 4, 264, 16, 1},  // more inputs than a part of a product
    {2, 8, 8, 16, 304, 1},
};

ConvolutionGeometry geometry_of(const WinogradCase& c) {
  ConvolutionGeometry geometry = convolution_geometry("test", {c.height, c.width, c.inputs}, {3, 1, c.padding});
  geometry.channels = c.channels;
  return geometry;
}

std::string describe(const WinogradCase& c) {
  return std::to_string(c.samples) + " x " + trainer::describe(Shape{c.height, c.width, c.inputs}) + " to " +
         std::to_string(c.channels) + " channels, padding " + std::to_string(c.padding) + ", seed " +
         std::to_string(kTestSeed);
}

ConvolutionResults<float> by_winograd(const WinogradCase& c, std::int64_t first, std::int64_t count) {
  const ConvolutionGeometry g = geometry_of(c);
  return results_of(*winograd_convolution(g), g, ConvolutionValues<float>(g, c.samples), first, count);
}

class WinogradConvolutions : public testing::Test {
 protected:
  void SetUp() override {
    if (!winograd_can_compute(geometry_of(kWinogradCases[0]))) GTEST_SKIP() << "needs AVX2 and FMA";
  }
  ~WinogradConvolutions() override { omp_set_num_threads(former_threads_); }

  const int former_threads_ = omp_get_max_threads();
};

// The tolerance is that of Conv2d.LibrariesAgreeToRounding.
TEST_F(WinogradConvolutions, AgreeWithEigenInDouble) {
  for (const WinogradCase& c : kWinogradCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    ASSERT_TRUE(winograd_can_compute(g));
    const auto exact =
        results_of(*eigen_convolution<double>(g), g, ConvolutionValues<double>(g, c.samples), 0, c.samples);
    const auto results = by_winograd(c, 0, c.samples);
    EXPECT_LT(error_of(results.output, exact.output), 7e-5);
    EXPECT_LT(error_of(results.input_gradient, exact.input_gradient), 7e-5);
    EXPECT_LT(error_of(results.weight_gradient, exact.weight_gradient), 7e-5);
    EXPECT_LT(error_of(results.bias_gradient, exact.bias_gradient), 7e-5);
  }
}

// ThreadSanitizer does not see how OpenMP orders its threads.
TEST_F(WinogradConvolutions, BitsDoNotDependOnThreads) {
  if (farandole::test::kThreadSanitizer) GTEST_SKIP() << "OpenMP is not instrumented";
  for (const WinogradCase& c : kWinogradCases) {
    SCOPED_TRACE(describe(c));
    omp_set_num_threads(1);
    const auto expected = by_winograd(c, 0, c.samples);
    for (const int threads : {2, 3, 40}) {
      omp_set_num_threads(threads);
      EXPECT_TRUE(by_winograd(c, 0, c.samples) == expected) << threads << " threads";
    }
  }
}

TEST_F(WinogradConvolutions, SamplesDoNotDependOnTheirNeighbours) {
  for (const WinogradCase& c : kWinogradCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    const auto together = by_winograd(c, 0, c.samples);
    for (std::int64_t sample = 0; sample < c.samples; sample += 3) {
      const auto alone = by_winograd(c, sample, 1);
      EXPECT_TRUE(std::equal(alone.output.begin(), alone.output.end(),
                             together.output.begin() + sample * g.output_positions() * g.channels))
          << "output of sample " << sample;
      EXPECT_TRUE(std::equal(alone.input_gradient.begin(), alone.input_gradient.end(),
                             together.input_gradient.begin() + sample * g.input_elements()))
          << "input gradient of sample " << sample;
    }
  }
}

TEST_F(WinogradConvolutions, BiasAndGradientsCanBeLeftOut) {
  const WinogradCase c = kWinogradCases[1];
  const ConvolutionGeometry g = geometry_of(c);
  ConvolutionValues<float> values(g, c.samples);
  std::fill(values.bias.begin(), values.bias.end(), 0.0F);
  const auto convolution = winograd_convolution(g);
  const auto expected = results_of(*convolution, g, values, 0, c.samples);
  std::vector<float> output(expected.output.size()), weight_gradient(expected.weight_gradient.size());
  Workspace workspace;
  convolution->forward(workspace, c.samples, values.input.data(), values.weights.data(), nullptr, output.data());
  convolution->backward(workspace, c.samples, values.input.data(), values.weights.data(), values.output_gradient.data(),
                        weight_gradient.data(), nullptr, nullptr);
  EXPECT_EQ(output, expected.output);
  EXPECT_EQ(weight_gradient, expected.weight_gradient);
}

TEST_F(WinogradConvolutions, WithAReluHaveTheBitsOfTwoPasses) {
  for (const WinogradCase& c : kWinogradCases) {
    SCOPED_TRACE(describe(c));
    const ConvolutionGeometry g = geometry_of(c);
    expect_bits_of_two_passes(*winograd_convolution(g), g, c.samples);
  }
}

TEST_F(WinogradConvolutions, OtherGeometriesAreRefused) {
  const ConvolutionGeometry computed = geometry_of(kWinogradCases[0]);
  const std::pair<std::int64_t ConvolutionGeometry::*, std::int64_t> changes[] = {{&ConvolutionGeometry::kernel, 5},
                                                                                  {&ConvolutionGeometry::stride, 2},
                                                                                  {&ConvolutionGeometry::padding, 3},
                                                                                  {&ConvolutionGeometry::inputs, 12},
                                                                                  {&ConvolutionGeometry::channels, 20}};
  for (const auto& [member, value] : changes) {
    ConvolutionGeometry other = computed;
    other.*member = value;
    EXPECT_FALSE(winograd_can_compute(other));
    EXPECT_FALSE(winograd_is_faster(other));
  }
}

// trainer_convolutions_avx2 runs this test with oneDNN limited to AVX2.
TEST_F(WinogradConvolutions, AreChosenIfOneDnnHasNoAvx512) {
  const WinogradCase c = kWinogradCases[0];
  const ConvolutionGeometry g = geometry_of(c);
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (limit != nullptr && std::string_view(limit) == "AVX2") {
    EXPECT_TRUE(winograd_is_faster(g));
  }
  const ConvolutionValues<float> values(g, c.samples);
  const auto own = by_winograd(c, 0, c.samples);
  const auto equals_own = [&](const ConvolutionChoice& choice) {
    const auto convolution = host_kernels<float>().convolution(g, choice);
    return results_of(*convolution, g, values, 0, c.samples) == own;
  };
  EXPECT_EQ(equals_own({.winograd = true}), winograd_is_faster(g));
  EXPECT_FALSE(equals_own({.winograd = false}));
  EXPECT_FALSE(equals_own({.library = ConvolutionLibrary::kOneDnn, .winograd = true}));
  EXPECT_FALSE(equals_own({.library = ConvolutionLibrary::kEigen, .winograd = true}));
}

}  // namespace
}  // namespace farandole::trainer
