// SPDX-License-Identifier: Apache-2.0
// Attention by fused kernels: results of the formula, repeatability, captures, and what happens where the library has
// no fused form. Without fused kernels (no cuDNN, or a device that it does not support) most tests are skipped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "broken_device.h"
#include "cudnn_attention.h"
#include "double_calls.h"
#include "farandole/internal/float16.h"
#include "farandole/trainer/layers.h"
#include "farandole/trainer/model.h"
#include "graph_capture.h"
#include "half_values.h"
#include "kernel_comparison.h"
#include "kernels/memory_log.h"
#include "message_of.h"
#include "on_device.h"

namespace farandole::trainer::test {
namespace {

using farandole::test::calls_of;
using farandole::test::inject_into_double;
using farandole::test::message_of;
using farandole::test::on_each_device;
using testing::HasSubstr;
using testing::StartsWith;

/// The values of a forward and a backward pass.
struct Results {
  std::vector<float> context, statistics, qkv_gradient;
};

/// Attention by the formula, in double.
class Formula {
 public:
  Formula(const AttentionForm& form, const std::vector<float>& qkv, const std::vector<float>& context_gradient)
      : f_(form), qkv_(qkv), by_context_(context_gradient) {
    results_.context.resize(size(f_.rows() * f_.units()));
    results_.statistics.resize(size(f_.rows() * f_.heads));
    results_.qkv_gradient.resize(size(f_.rows() * 3 * f_.units()));
    for (std::int64_t sample = 0; sample < f_.samples; ++sample) {
      for (std::int64_t head = 0; head < f_.heads; ++head) compute(sample, head);
    }
  }
  const Results& results() const { return results_; }

 private:
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  std::size_t place(std::int64_t part, std::int64_t sample, std::int64_t head, std::int64_t row, std::int64_t k) const {
    return size(((sample * f_.length + row) * 3 + part) * f_.units() + head * f_.head_units + k);
  }
  std::size_t context_place(std::int64_t sample, std::int64_t head, std::int64_t row, std::int64_t k) const {
    return size((sample * f_.length + row) * f_.units() + head * f_.head_units + k);
  }
  double value(std::int64_t part, std::int64_t sample, std::int64_t head, std::int64_t row, std::int64_t k) const {
    return static_cast<double>(qkv_[place(part, sample, head, row, k)]);
  }
  void compute(std::int64_t sample, std::int64_t head) {
    const auto add = [&](std::vector<float>& to, std::size_t at, double what) { to[at] += static_cast<float>(what); };
    for (std::int64_t row = 0; row < f_.length; ++row) {
      const std::int64_t visible = f_.causal ? row + 1 : f_.length;
      std::vector<double> p(size(visible)), by_p(size(visible));
      double sum = 0, weighted = 0;
      for (std::int64_t column = 0; column < visible; ++column) {
        double score = 0;
        for (std::int64_t k = 0; k < f_.head_units; ++k) {
          score += value(0, sample, head, row, k) * value(1, sample, head, column, k);
        }
        sum += p[size(column)] = std::exp(score * f_.scale());
      }
      results_.statistics[size((sample * f_.heads + head) * f_.length + row)] = static_cast<float>(std::log(sum));
      for (std::int64_t column = 0; column < visible; ++column) {
        p[size(column)] /= sum;
        for (std::int64_t k = 0; k < f_.head_units; ++k) {
          const std::size_t at = context_place(sample, head, row, k);
          const double gradient = by_context_[at];
          add(results_.context, at, p[size(column)] * value(2, sample, head, column, k));
          add(results_.qkv_gradient, place(2, sample, head, column, k), p[size(column)] * gradient);
          by_p[size(column)] += gradient * value(2, sample, head, column, k);
        }
        weighted += p[size(column)] * by_p[size(column)];
      }
      for (std::int64_t column = 0; column < visible; ++column) {
        const double by_score = f_.scale() * p[size(column)] * (by_p[size(column)] - weighted);
        for (std::int64_t k = 0; k < f_.head_units; ++k) {
          add(results_.qkv_gradient, place(0, sample, head, row, k), by_score * value(1, sample, head, column, k));
          add(results_.qkv_gradient, place(1, sample, head, column, k), by_score * value(0, sample, head, row, k));
        }
      }
    }
  }

  const AttentionForm f_;
  const std::vector<float>& qkv_;
  const std::vector<float>& by_context_;
  Results results_;
};

/// Attention of a device with memory of its own.
class FusedPasses {
 public:
  FusedPasses(const Execution& execution, DType half, const AttentionForm& form)
      : execution_(execution),
        half_(half),
        form_(form),
        qkv_values_(rounded(fine_values<float>(form.rows() * 3 * form.units(), 1), half)),
        gradient_values_(rounded(fine_values<float>(form.rows() * form.units(), 2), half)),
        qkv_(on_device(qkv_values_)),
        gradient_(on_device(gradient_values_)),
        rounded_qkv_(of(DType::kF32, qkv_values_.size())),  // twice what is needed
        context_(of(DType::kF32, gradient_values_.size())),
        statistics_(of(DType::kF32, static_cast<std::size_t>(form.rows() * form.heads))),
        rounded_gradient_(of(DType::kF32, qkv_values_.size())),
        qkv_gradient_(of(DType::kF32, qkv_values_.size())) {}

  bool fuses(bool with_gradients = true) { return fused().fuses(execution_.workspace(), form_, with_gradients); }
  void forward() { fused().forward(execution_.workspace(), form_, at(qkv_), memory()); }
  void backward() {
    fused().backward(execution_.workspace(), form_, memory(), at(gradient_), at(rounded_gradient_), at(qkv_gradient_));
  }
  void run() {
    forward();
    backward();
  }
  void clear() {
    for (Buffer* buffer : {&rounded_qkv_, &context_, &statistics_, &qkv_gradient_, &rounded_gradient_}) {
      kernels_of<float>(execution_).clear(static_cast<std::int64_t>(buffer->view().count), at(*buffer));
    }
  }
  Results results() {
    const std::vector<float> context = values(context_);
    Results all{{}, values(statistics_), values(qkv_gradient_)};
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(context.data());
    for (std::size_t i = 0; i < gradient_values_.size(); ++i) {
      all.context.push_back(half_ == DType::kBF16 ? widen(reinterpret_cast<const BFloat16*>(halves)[i])
                                                  : widen(reinterpret_cast<const Half*>(halves)[i]));
    }
    return all;
  }
  Results expected() const { return Formula(form_, qkv_values_, gradient_values_).results(); }

 private:
  FusedAttention<float>& fused() const { return *kernels_of<float>(execution_).sequence().fused_attention(); }
  FusedAttentionMemory<float> memory() { return {at(rounded_qkv_), at(context_), at(statistics_)}; }
  static float* at(Buffer& buffer) { return static_cast<float*>(buffer.view().data); }
  Buffer of(DType dtype, std::size_t count) { return allocate(execution_.memory(), count, dtype); }
  Buffer on_device(std::vector<float>& values) {
    Buffer buffer = of(DType::kF32, values.size());
    copy_now(execution_, buffer.view(), VectorView<float>(values));
    return buffer;
  }
  std::vector<float> values(Buffer& buffer) {
    const BufferView view = buffer.view();
    return to_host<float>(execution_, {static_cast<const float*>(view.data), view.count, view.space});
  }

  const Execution execution_;
  const DType half_;
  const AttentionForm form_;
  std::vector<float> qkv_values_, gradient_values_;
  Buffer qkv_, gradient_, rounded_qkv_, context_, statistics_, rounded_gradient_, qkv_gradient_;
};

void expect_near(const std::vector<float>& found, const std::vector<float>& expected, double error,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], error) << what << ", element " << i;
}

const AttentionForm kForm{2, 3, 12, 16, true};

bool is_double() {
  return calls_of("cuInit") > 0;
}
/// Why this device has no fused attention in the type; empty if it has.
std::string why_not(Communicator& ranks, const DeviceComputation& computation) {
  const std::string library = device_execution(ranks, computation).device_kernels()->attention_library();
  return library.starts_with("cuDNN") ? "" : library;
}
#define SKIP_WITHOUT_FUSED(ranks, ...)                                           \
  if (const std::string reason = why_not(ranks, {__VA_ARGS__}); !reason.empty()) \
  GTEST_SKIP() << "attention by " << reason

/// Probabilities, the context, its gradient and the gradient of scores are rounded, so that a result of `length` terms
/// below 1 has an error of a few roundings.
TEST(FusedAttentionTest, HasTheResultsOfTheFormula) {
  on_each_device([](Communicator& ranks) {
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    for (const DType half : kHalves) {
      for (const AlgorithmChoice choice : {AlgorithmChoice::kFixed, AlgorithmChoice::kMeasured}) {
        if (!why_not(ranks, {choice, half}).empty()) continue;  // a device without it in deterministic mode
        const Execution execution = device_execution(ranks, {choice, half});
        for (const bool causal : {false, true}) {
          for (const AttentionForm& form : {AttentionForm{1, 1, 2, 8, causal},
                                            {2, 3, 12, 16, causal},
                                            {2, 3, 1, 16, causal},
                                            {3, 2, 65, 64, causal},
                                            {1, 2, 128, 128, causal}}) {
            if (is_double() && form.length > 65) continue;  // the double is slow
            FusedPasses passes(execution, half, form);
            ASSERT_TRUE(passes.fuses()) << execution.device_kernels()->attention_library();
            passes.run();
            const Results found = passes.results(), expected = passes.expected();
            const std::string what = describe(Shape{form.heads, form.length, form.head_units});
            expect_near(found.statistics, expected.statistics, 1e-4, "statistics, " + what);
            expect_near(found.context, expected.context, 2 * unit(half), "context, " + what);
            expect_near(found.qkv_gradient, expected.qkv_gradient, 6 * unit(half), "gradients, " + what);
          }
        }
      }
    }
  });
}

TEST(FusedAttentionTest, HasTheSameBitsEachTimeIfFixed) {
  on_each_device([](Communicator& ranks) {
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kFixed, DType::kBF16);
    std::vector<float> first;
    for (int again = 0; again < 6; ++again) {
      const Execution execution = device_execution(ranks, {AlgorithmChoice::kFixed, DType::kBF16});
      FusedPasses passes(execution, DType::kBF16, kForm);
      ASSERT_TRUE(passes.fuses());
      for (int run = 0; run < 2; ++run) {
        passes.run();
        const Results found = passes.results();
        if (first.empty()) first = found.qkv_gradient;
        ASSERT_EQ(found.qkv_gradient, first);
      }
    }
  });
}

TEST(FusedAttentionTest, MakesPlansOnceForEachForm) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "only the double counts calls";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kF16});
    const auto calls = [] { return calls_of("cudnnBackendGetAttribute") + calls_of("cuMemAlloc_v2"); };
    FusedPasses passes(execution, DType::kF16, kForm), of_same_form(execution, DType::kF16, kForm);
    const unsigned long before = calls();
    ASSERT_TRUE(passes.fuses());
    passes.run();
    const unsigned long after = calls();
    EXPECT_GT(after, before);
    for (int again = 0; again < 3; ++again) {
      EXPECT_TRUE(of_same_form.fuses());
      of_same_form.run();
    }
    EXPECT_EQ(calls(), after);
  });
}

TEST(FusedAttentionTest, CanBeCapturedAfterItsFirstUse) {
  on_each_device([](Communicator& ranks) {
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kFixed, DType::kBF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kFixed, DType::kBF16});
    Device& device = farandole::test::device_of(ranks);
    FusedPasses passes(execution, DType::kBF16, kForm);
    ASSERT_TRUE(passes.fuses());
    passes.run();
    const Results expected = passes.results();
    farandole::test::StreamCapture capture(device, execution.stream());
    ASSERT_TRUE(passes.fuses());
    passes.run();
    const auto graph = capture.end();
    passes.clear();
    EXPECT_NE(passes.results().qkv_gradient, expected.qkv_gradient);
    for (int again = 0; again < 2; ++again) graph->launch(execution.stream());
    EXPECT_EQ(passes.results().context, expected.context);
    EXPECT_EQ(passes.results().qkv_gradient, expected.qkv_gradient);
  });
}

TEST(FusedAttentionTest, LeavesToOthersWhatTheLibraryRefuses) {
  on_each_device([](Communicator& ranks) {
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
    const auto said = [&] { return execution.device_kernels()->attention_library(); };
    EXPECT_FALSE(FusedPasses(execution, DType::kBF16, {2, 1, 6, 12, true}).fuses());
    EXPECT_EQ(
        said(),
        "cuBLAS (not for 2 samples of 6 positions with 1 heads of 12 units, causal: heads need a multiple of 8 units)");
    EXPECT_FALSE(FusedPasses(execution, DType::kBF16, {3, 1, 6, 1024, false}).fuses()) << "cuDNN has no such engine";
    EXPECT_THAT(said(),
                StartsWith("cuBLAS (not for 3 samples of 6 positions with 1 heads of 1024 units, not causal: "));
    EXPECT_TRUE(FusedPasses(execution, DType::kBF16, kForm).fuses()) << "a refusal is of one form";
    const int capability = farandole::test::device_of(ranks).info().compute_capability;
    FusedPasses wide(execution, DType::kBF16, {2, 1, 6, 256, false});
    EXPECT_TRUE(wide.fuses(false));
    EXPECT_EQ(wide.fuses(true), capability / 10 == 9);
    if (capability / 10 != 9) {
      EXPECT_EQ(said(),
                "cuBLAS (not for 2 samples of 6 positions with 1 heads of 256 units, not causal: with "
                "gradients, heads have up to 128 units on this device)");
    }
  });
}

/// The same with memory whose bytes are counted. @param execution  outlives the result
Execution counting(const Execution& execution, std::size_t& bytes) {
  TensorMemory memory{execution.space(), [&](std::size_t count, DType dtype) {
                        bytes += count * size_in_bytes(dtype);
                        return execution.memory().allocate(count, dtype);
                      }};
  return {memory,
          execution.stream(),
          execution.precision(),
          std::make_shared<Workspace>(memory),
          execution.device_kernels(),
          std::make_shared<MemoryLog>()};
}

TEST(FusedAttentionTest, NeedsNoSquaresOfScoresInALayer) {
  on_each_device([](Communicator& ranks) {
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    constexpr std::int64_t kLength = 256, kUnits = 16, kHeads = 2;
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
    Model<float> model({kLength, kUnits}, layers<float>(attention<float>({.heads = kHeads, .causal = true})));
    model.initialize(1);
    Tensor<float> input(1, {kLength, kUnits});
    std::ranges::copy(fine_values<float>(input.size(), 1), input.host().begin());
    const Pass pass{.training = true};
    const std::vector<float> expected = to_host<float>({}, model.forward(pass, input).view());

    std::size_t bytes = 0;
    const Execution counted = counting(execution, bytes);
    model.move_to(counted);
    Tensor<float> on_device(counted.memory());
    on_device.resize(1, {kLength, kUnits});
    copy_now(counted, on_device.view(), input.view());
    const unsigned long executed = calls_of("cudnnBackendExecute");
    const Tensor<float>& output = model.forward(pass, on_device);
    const std::vector<float> found = to_host<float>(counted, output.view());
    model.backward(pass, on_device, output, {});
    finish(counted);
    EXPECT_LT(bytes, kHeads * kLength * kLength * sizeof(float));
    EXPECT_EQ(calls_of("cudnnBackendExecute"), is_double() ? executed + 2 : executed);
    expect_near(found, expected, 4 * unit(DType::kBF16), "output");
  });
}

TEST(FusedAttentionTest, IsForTypesOf16BitsOnly) {
  on_each_device([](Communicator& ranks) {
    const Execution execution = device_execution(ranks);
    EXPECT_FALSE(FusedPasses(execution, DType::kBF16, kForm).fuses());
    EXPECT_THAT(execution.device_kernels()->attention_library(), StartsWith("cuBLAS ("));
    EXPECT_EQ(kernels_of<double>(execution).sequence().fused_attention(), nullptr);
  });
}

/// A call that fails while plans are made.
void expect_refusal(Communicator& ranks, const char* call, unsigned nth, int error, bool with_gradients,
                    const std::string& reason) {
  const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
  FusedPasses passes(execution, DType::kBF16, kForm);
  inject_into_double(call, nth, error);
  EXPECT_FALSE(passes.fuses(with_gradients)) << call;
  farandole::test::find_in_driver<decltype(fake_device_restore)>("fake_device_restore")();
  EXPECT_THAT(execution.device_kernels()->attention_library(), HasSubstr(reason)) << call;
  EXPECT_FALSE(passes.fuses(with_gradients)) << "the answer is kept";
}

TEST(FusedAttentionTest, FailuresOfPlansAreRefusals) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "only the double fails on request";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    expect_refusal(ranks, "cudnnBackendFinalize", 0, 3000, false, "CUDNN_STATUS_NOT_SUPPORTED");
    expect_refusal(ranks, "cudnnBackendSetAttribute", 0, 3000, false, "cudnnBackendSetAttribute");
    expect_refusal(ranks, "cudnnBackendCreateDescriptor", 1, 3000, false, "cudnnBackendCreateDescriptor");
    expect_refusal(ranks, "cudnnCreate", 1, 1001, true, "cudnnCreate failed");
  });
}

TEST(FusedAttentionTest, IsRefusedWithoutMemoryForTheWorkspace) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "only the double runs out of memory on request";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    auto* const set = farandole::test::find_in_driver<decltype(fake_device_set)>("fake_device_set");
    set("FAKE_CUDNN_WORKSPACE", "64M");
    expect_refusal(ranks, "cuMemAlloc", 0, 2, true, "no memory for cuDNN's workspace of 67108864 bytes");
    set("FAKE_CUDNN_WORKSPACE", "20K");
  });
}

TEST(FusedAttentionTest, AGradientThatIsRefusedAfterAnEvaluationIsAnError) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "only the double fails on request";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
    FusedPasses passes(execution, DType::kBF16, kForm);
    ASSERT_TRUE(passes.fuses(false));
    passes.forward();
    inject_into_double("cudnnBackendFinalize", 0, 3000);
    const std::string message = message_of<DeviceError>([&] { passes.backward(); });
    farandole::test::find_in_driver<decltype(fake_device_restore)>("fake_device_restore")();
    EXPECT_THAT(message, HasSubstr("cannot compute its gradient (not for 2 samples of 12 positions with 3 heads"));
  });
}

TEST(FusedAttentionTest, ErrorsOfCudnnAreNamed) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "only the double fails on request";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
    FusedPasses passes(execution, DType::kBF16, kForm);
    ASSERT_TRUE(passes.fuses());
    inject_into_double("cudnnBackendExecute", 1, 5000);
    const std::string message = message_of<DeviceError>([&] { passes.run(); });
    farandole::test::find_in_driver<decltype(fake_device_restore)>("fake_device_restore")();
    EXPECT_THAT(message, testing::AllOf(HasSubstr("cudnnBackendExecute failed on CUDA device"),
                                        HasSubstr("CUDNN_STATUS_EXECUTION_FAILED (5000)"),
                                        HasSubstr("FARANDOLE_CUDNN_LIBRARY=off computes without cuDNN")));
  });
}

TEST(FusedAttentionTest, KeepsThePlansOfALimitedNumberOfForms) {
  on_each_device([](Communicator& ranks) {
    if (!is_double()) GTEST_SKIP() << "a GPU's cuDNN needs minutes for so many plans";
    SKIP_WITHOUT_FUSED(ranks, AlgorithmChoice::kMeasured, DType::kBF16);
    const Execution execution = device_execution(ranks, {AlgorithmChoice::kMeasured, DType::kBF16});
    FusedAttention<float>& fused = *kernels_of<float>(execution).sequence().fused_attention();
    const auto fuses = [&](std::int64_t samples) {
      return fused.fuses(execution.workspace(), {samples, 1, 2, 8, false}, false);
    };
    constexpr auto kMost = static_cast<std::int64_t>(cuda::CudnnAttention::kMaxForms);
    for (std::int64_t samples = 1; samples <= kMost; ++samples) EXPECT_TRUE(fuses(samples));
    EXPECT_FALSE(fuses(kMost + 1));
    EXPECT_THAT(execution.device_kernels()->attention_library(), HasSubstr("there are plans for 512 other shapes"));
    EXPECT_TRUE(fuses(1));
  });
}

}  // namespace
}  // namespace farandole::trainer::test
