// SPDX-License-Identifier: Apache-2.0
// Trainings with data, losses and callbacks of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "farandole/core/error.h"
#include "farandole/trainer/random.h"
#include "message_of.h"
#include "small_training.h"
#include "variable.h"

namespace farandole::trainer {
namespace {

using test::layers;
using test::options_for;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr std::int64_t kSamples = 100;

/// y = 2 a - b + 1, without noise.
Samples plane() {
  Samples samples{.shape = {2}, .target_shape = {1}};
  std::vector<float> inputs;
  const CounterRandom random(3, 0);
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const double a = random.normal(2 * i), b = random.normal(2 * i + 1);
    inputs.push_back(static_cast<float>(a));
    inputs.push_back(static_cast<float>(b));
    samples.targets.push_back(static_cast<float>(2 * a - b + 1));
  }
  samples.inputs = std::move(inputs);
  return samples;
}

Model<double> linear() {
  return Model<double>({2}, layers<double>({[] { return dense<double>(1); }}));
}

struct Plan {
  std::shared_ptr<const Dataset> training = memory_dataset(plane());
  TrainerOptions options = options_for(60);
  LossPointer<double> loss = mean_squared_error<double>();
};

struct Trained {
  EpochReport report;
  Evaluation evaluation;
  std::vector<double> parameters;
};

Trained train(int replicas, const Plan& plan) {
  Trained trained;
  run_replicas(replicas, [&](Communicator& replica) {
    Trainer<double> trainer(replica, linear(), plan.training, nullptr, plan.options, plan.loss);
    const EpochReport report = trainer.fit();
    const Evaluation evaluation = trainer.evaluate(*plan.training);
    if (replica.rank() != 0) return;
    const auto parameters = trainer.model().parameters().host();
    trained = {report, evaluation, {parameters.begin(), parameters.end()}};
  });
  return trained;
}

TEST(OwnData, RegressionFindsThePlane) {
  Plan plan;
  plan.options.max_steps = 400;
  const Trained trained = train(2, plan);
  EXPECT_LT(trained.evaluation.loss, 1e-8);
  EXPECT_TRUE(trained.evaluation.metrics.empty()) << "there are no classes";
  EXPECT_TRUE(trained.report.metrics.empty());
  ASSERT_EQ(trained.parameters.size(), 3U);
  EXPECT_NEAR(trained.parameters[0], 2, 1e-3);
  EXPECT_NEAR(trained.parameters[1], -1, 1e-3);
  EXPECT_NEAR(trained.parameters[2], 1, 1e-3);
}

TEST(OwnData, ReplicasGiveTheSameBitsInDeterministicMode) {
  Plan plan;
  plan.options.deterministic = true;
  for (const auto& loss : {mean_squared_error<double>(), huber_loss<double>(0.5), mean_absolute_error<double>()}) {
    plan.loss = loss;
    const Trained alone = train(1, plan);
    for (const int replicas : {2, 4, 8}) {
      const Trained together = train(replicas, plan);
      EXPECT_EQ(together.parameters, alone.parameters) << loss->name() << " on " << replicas;
      EXPECT_EQ(together.report.loss, alone.report.loss);
      EXPECT_EQ(together.evaluation.loss, alone.evaluation.loss);
    }
  }
}

TEST(OwnData, PredictionsAreThoseOfTheModelOnEveryRank) {
  const auto data = memory_dataset(plane());
  std::vector<std::vector<double>> expected(3), predicted(3);
  run_replicas(3, [&](Communicator& replica) {
    Plan plan;
    plan.options.evaluation_batch = 7;
    Trainer<double> trainer(replica, linear(), plan.training, nullptr, plan.options, plan.loss);
    trainer.fit();
    const auto rank = static_cast<std::size_t>(replica.rank());
    const Tensor<double> outputs = trainer.predict(*data);
    EXPECT_EQ(outputs.samples(), kSamples);
    EXPECT_EQ(outputs.shape(), Shape{1});
    predicted[rank].assign(outputs.host().begin(), outputs.host().end());
    std::vector<std::uint32_t> all(kSamples);
    std::iota(all.begin(), all.end(), 0U);
    Batch<double> batch;
    data->gather(all, batch);
    const auto alone = trainer.model().forward({}, batch.inputs).host();
    expected[rank].assign(alone.begin(), alone.end());
  });
  EXPECT_THAT(predicted, Each(predicted[0]));
  EXPECT_THAT(predicted[0], testing::Pointwise(testing::DoubleNear(1e-12), expected[0]));
}

TEST(OwnData, AWeightOfZeroLeavesASampleOut) {
  Samples samples = plane();
  samples.weights.assign(kSamples, 1);
  for (std::size_t i = 0; i < kSamples; i += 3) {
    samples.weights[i] = 0;
    samples.targets[i] = 1000;
  }
  Plan plan;
  plan.options.max_steps = 800;
  plan.training = memory_dataset(samples);
  EXPECT_LT(train(2, plan).evaluation.loss, 1e-6);
}

std::vector<std::string> errors_of(int replicas, const std::function<void(Communicator&)>& run) {
  std::vector<std::string> messages(static_cast<std::size_t>(replicas));
  run_replicas(replicas, [&](Communicator& replica) {
    try {
      run(replica);
    } catch (const std::exception& error) {
      messages[static_cast<std::size_t>(replica.rank())] = farandole::message_of(error);
    }
  });
  return messages;
}

TEST(OwnData, ANumberThatIsNotFiniteIsNamed) {
  for (const bool is_target : {false, true}) {
    Samples samples = plane();
    if (is_target) {
      samples.targets[57] = std::numeric_limits<float>::quiet_NaN();
    } else {
      std::get<0>(samples.inputs)[2 * 57 + 1] = std::numeric_limits<float>::infinity();
    }
    const auto messages = errors_of(3, [&](Communicator& replica) {
      const Plan plan{.training = memory_dataset(samples)};
      Trainer<double>(replica, linear(), plan.training, nullptr, plan.options, plan.loss).fit();
    });
    EXPECT_THAT(messages,
                Each(AllOf(HasSubstr("the loss is not a number"), HasSubstr("Sample 57 of the training data"))));
  }
}

TEST(OwnLoss, IsComparedByName) {
  const auto messages = errors_of(2, [&](Communicator& replica) {
    const Plan plan{.loss = huber_loss<double>(replica.rank() + 1)};
    const Trainer<double> trainer(replica, linear(), plan.training, nullptr, plan.options, plan.loss);
  });
  EXPECT_THAT(messages, Each(AllOf(HasSubstr("the loss is huber, delta 1 on rank 0"), HasSubstr("huber, delta 2"))));
}

TEST(OwnLoss, MustFitTheData) {
  const auto messages = errors_of(2, [&](Communicator& replica) {
    const Trainer<double> trainer(replica, linear(), memory_dataset(plane()), nullptr, options_for(3));
  });
  EXPECT_THAT(messages, Each(HasSubstr("cross_entropy needs samples with classes, and the training data have none")));
}

/// Cannot read sample 40.
class Broken final : public Dataset {
 public:
  std::int64_t size() const override { return kSamples; }
  const Shape& shape() const override { return whole_->shape(); }
  const Shape& target_shape() const override { return whole_->target_shape(); }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override {
    if (std::find(samples.begin(), samples.end(), 40U) != samples.end()) throw DataError("sample 40: no such file");
    whole_->gather(samples, batch);
  }

 private:
  const std::shared_ptr<const Dataset> whole_ = memory_dataset(plane());
};

/// One rank has `own` as its message, and every other rank has the text of a lost peer.
void expect_one(const std::vector<std::string>& messages, const std::string& own, const std::string& of_others) {
  std::size_t ours = 0;
  for (const std::string& message : messages) {
    if (message == own) {
      ++ours;
    } else {
      EXPECT_THAT(message, HasSubstr(of_others));
    }
  }
  EXPECT_EQ(ours, 1U) << testing::PrintToString(messages);
}

TEST(OwnCode, ASampleThatOneRankCannotReadEndsAll) {
  const auto messages = errors_of(3, [&](Communicator& replica) {
    const Plan plan{.training = std::make_shared<const Broken>()};
    Trainer<double>(replica, linear(), plan.training, nullptr, plan.options, plan.loss).fit();
  });
  expect_one(messages, "sample 40: no such file",
             "has stopped training, because Dataset::gather threw: DataError: sample 40: no such file");
}

TEST(OwnCode, ACallbackThatThrowsOnOneRankEndsAll) {
  const auto messages = errors_of(3, [&](Communicator& replica) {
    Plan plan;
    if (replica.rank() == 1) {
      plan.options.on_step = [](const StepReport& report) {
        if (report.training_step == 2) throw std::runtime_error("disk full");
      };
    }
    Trainer<double>(replica, linear(), plan.training, nullptr, plan.options, plan.loss).fit();
  });
  expect_one(messages, "disk full", "rank 1 has stopped training, because TrainerOptions::on_step threw: disk full");
}

/// Throws on the replica of a rank.
class FailingMetric final : public Metric<double> {
 public:
  explicit FailingMetric(bool fails) : fails_(fails) {}
  std::string name() const override { return "failing"; }
  std::size_t sums(const Shape&) const override { return 1; }
  void add(const Execution&, const Tensor<double>&, const BatchView<double>&, VectorView<double>) const override {
    if (fails_) throw std::out_of_range("no addition");
  }
  double value(std::span<const double>) const override { return 0; }

 private:
  const bool fails_;
};

/// As FailingMetric.
class FailingRule final : public UpdateRule<double> {
 public:
  explicit FailingRule(bool fails) : fails_(fails) {}
  std::string name() const override { return "failing"; }
  std::vector<std::string> states() const override { return {}; }
  void update(VectorView<double>, VectorView<const double>, std::span<const VectorView<double>>,
              const UpdateFacts&) override {
    if (fails_) throw std::out_of_range("no update");
  }

 private:
  const bool fails_;
};

// The other ranks raise PeerLost, and may have ended before the exception has left the trainer.
TEST(OwnCode, RunReplicasRethrowsTheExceptionOfTheCodeThatFailed) {
  constexpr int kRepetitions = 100;  // of each
  const farandole::test::Variable quiet("FARANDOLE_LOG", "off");
  int rethrown = 0;
  for (int repetition = 0; repetition < 2 * kRepetitions; ++repetition) {
    const bool fails_in_metric = repetition % 2 == 0;
    try {
      run_replicas(3, [&](Communicator& replica) {
        const bool fails = replica.rank() == 1;
        Plan plan;
        plan.options.optimizer.kind = OptimizerKind::kOwn;
        plan.options.optimizer.own.f64 = [=] { return std::make_unique<FailingRule>(fails && !fails_in_metric); };
        Trainer<double>(replica, linear(), plan.training, nullptr, plan.options, plan.loss,
                        {std::make_shared<FailingMetric>(fails && fails_in_metric)})
            .fit();
      });
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), fails_in_metric ? "no addition" : "no update");
      ++rethrown;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "repetition " << repetition << ": " << error.what();
    }
  }
  EXPECT_EQ(rethrown, 2 * kRepetitions);
}

}  // namespace
}  // namespace farandole::trainer
