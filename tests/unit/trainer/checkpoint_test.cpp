// SPDX-License-Identifier: Apache-2.0
#include "farandole/trainer/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include "farandole/core/error.h"
#include "manifest.h"
#include "trainer_files.h"

namespace farandole::trainer {
namespace {

namespace fs = std::filesystem;
using farandole::test::message_of;
using test::contains;
using test::read_bytes;
using test::write_bytes;

/// A model of two tensors and an optimizer of one.
struct Content {
  std::vector<float> weight = std::vector<float>(12), bias = std::vector<float>(4), momentum = std::vector<float>(12);

  explicit Content(float first) {
    std::iota(weight.begin(), weight.end(), first);
    std::iota(bias.begin(), bias.end(), -first);
    std::iota(momentum.begin(), momentum.end(), 10 * first);
  }
  std::vector<CheckpointTensor> model() { return {{"0.dense.weight", {3, 4}, weight}, {"0.dense.bias", {4}, bias}}; }
  std::vector<CheckpointTensor> optimizer() { return {{"0.dense.weight.momentum", {3, 4}, momentum}}; }
  friend bool operator==(const Content&, const Content&) = default;
};

const std::vector<std::pair<std::string, std::string>> kOptions{{"seed", "1"}, {"global batch", "128"}};

const std::vector<EpochMetric> kMetrics{{"accuracy", {77, 256}}, {"mean_absolute_error", {1.0 / 7, 256}}, {"none", {}}};

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override { store_.prepare(); }

  void save(std::int64_t step, float first) {
    Content content(first);
    store_.save({.training_step = step,
                 .epoch = 1,
                 .position = 256,
                 .uncounted = 32,
                 .loss_sum = 1.0 / 3,
                 .metrics = kMetrics,
                 .options = kOptions},
                content.model(), content.optimizer());
  }
  CheckpointState load(Content& into, const std::vector<std::pair<std::string, std::string>>& options = kOptions) {
    return store_.load(store_.latest().value(), options, into.model(), into.optimizer());
  }
  template <class Kind>
  std::string refusal() {
    Content into(0);
    std::string message = message_of<Kind>([&] { load(into); });
    EXPECT_EQ(into, Content(0)) << "a refused checkpoint was loaded in part";
    return message;
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory())) found.insert(entry.path().filename().string());
    found.erase(".farandole-lock");
    return found;
  }
  fs::path directory() const { return temporary_.path() / "some" / "place"; }

 private:
  test::TemporaryDirectory temporary_;

 protected:
  CheckpointStore store_{directory(), 2};
};

TEST_F(Checkpoints, LoadsTheSavedState) {
  EXPECT_FALSE(store_.latest());
  save(123, 5);
  EXPECT_EQ(store_.latest().value().filename(), "step-000123");
  Content content(0);
  const CheckpointState state = load(content);
  EXPECT_EQ(content, Content(5));
  EXPECT_EQ(state.training_step, 123);
  EXPECT_EQ(state.epoch, 1);
  EXPECT_EQ(state.position, 256);
  EXPECT_EQ(state.uncounted, 32);
  EXPECT_EQ(state.loss_sum, 1.0 / 3);
  EXPECT_EQ(state.metrics, kMetrics);
}

/// Writes the manifest of the newest checkpoint again, after a change.
void change_manifest(const fs::path& checkpoint, const std::function<void(nlohmann::ordered_json&)>& change) {
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(read_bytes(checkpoint / "manifest.json"));
  manifest.erase("manifest_crc32");
  change(manifest);
  const std::string text = manifest.dump();
  manifest["manifest_crc32"] = crc32_text(std::as_bytes(std::span(text)));
  write_bytes(checkpoint / "manifest.json", manifest.dump());
}

TEST_F(Checkpoints, RightAnswersOfAnOldManifestAreTheAccuracy) {
  save(1, 5);
  change_manifest(store_.latest().value(), [](nlohmann::ordered_json& manifest) {
    manifest["version"] = 1;
    manifest.erase("epoch_metrics");
    manifest["epoch_correct"] = 77;
  });
  Content content(0);
  EXPECT_EQ(load(content).metrics, (std::vector<EpochMetric>{{"accuracy", {77, 256}}}));
  EXPECT_EQ(content, Content(5));
}

TEST_F(Checkpoints, ANewerManifestIsRefusedByItsVersion) {
  save(1, 5);
  change_manifest(store_.latest().value(), [](nlohmann::ordered_json& manifest) { manifest["version"] = 3; });
  EXPECT_TRUE(contains(refusal<Unsupported>(), "version 3 of the format; this program reads versions 1 to 2"));
}

TEST_F(Checkpoints, SumsThatAreNotFiniteAreReadAsNaN) {
  Content content(5);
  const std::vector<double> sums{std::numeric_limits<double>::infinity(), std::nan(""), 3};
  store_.save({.training_step = 1, .metrics = {{"own", sums}}, .options = kOptions}, content.model(),
              content.optimizer());
  const std::vector<EpochMetric> metrics = load(content).metrics;
  ASSERT_EQ(metrics.size(), 1U);
  ASSERT_EQ(metrics[0].sums.size(), 3U);
  EXPECT_TRUE(std::isnan(metrics[0].sums[0]) && std::isnan(metrics[0].sums[1]));
  EXPECT_EQ(metrics[0].sums[2], 3);
}

TEST_F(Checkpoints, StateOfThePlateauIsOptional) {
  Content content(0);
  save(1, 5);
  EXPECT_FALSE(load(content).plateau);
  for (const double best : {0.1, std::numeric_limits<double>::infinity()}) {
    const PlateauState plateau{.best = best, .bad_losses = 3, .factor = 1.0 / 3, .pending = true};
    const std::int64_t step = best < 1 ? 2 : 3;
    store_.save({.training_step = step, .options = kOptions, .plateau = plateau}, content.model(), content.optimizer());
    EXPECT_EQ(load(content).plateau, plateau);
  }
}

TEST_F(Checkpoints, DescribeTheirModel) {
  Content content(0);
  save(1, 5);
  EXPECT_FALSE(describe_checkpoint(directory()).state.model) << "a checkpoint of an older program";
  const ModelDescription model{.input = {3}, .output = {4}, .layers = {"'dense, 4 units', output 4"}, .parameters = 16};
  store_.save({.training_step = 2, .epoch = 1, .options = kOptions, .model = model}, content.model(),
              content.optimizer());
  const LoadedCheckpoint found = describe_checkpoint(directory());
  EXPECT_EQ(found.path.filename(), "step-000002");
  EXPECT_EQ(found.state.model, model);
  EXPECT_EQ(found.state.training_step, 2);
  EXPECT_EQ(found.state.options, kOptions);
  EXPECT_EQ(describe_checkpoint(directory() / "step-000001").state.training_step, 1);
  EXPECT_EQ(describe(model), "3 to 4, 16 parameters, 1 layer ('dense, 4 units', output 4)");
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { describe_checkpoint(directory() / "nowhere"); }),
                       "holds no complete checkpoint"));

  std::vector<CheckpointTensor> other = content.model();
  other[1].shape = {2, 2};
  ModelDescription ours = model;
  ours.layers = {"'dense, 5 units', output 5"};
  const std::string text =
      message_of<InvalidArgument>([&] { store_.load(found.path, kOptions, other, content.optimizer(), ours); });
  EXPECT_TRUE(contains(text, "the model's is '0.dense.bias' of shape 2x2 and type f32. The checkpoint's model is " +
                                 describe(model) + "; this model is " + describe(ours)));
}

TEST_F(Checkpoints, AnOptionThatTheCheckpointLacksIsNone) {
  Content content(0);
  save(1, 5);
  auto options = kOptions;
  options.emplace_back("parameter average", "none");
  EXPECT_EQ(load(content, options).training_step, 1);
  options.back().second = "exponential";
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { load(content, options); }),
                       "was written with parameter average none, but this training has exponential"));
}

TEST_F(Checkpoints, TheNewestAreKeptByTrainingStep) {
  for (const int step : {999'999, 1'000'000, 1'000'001}) save(step, static_cast<float>(step % 10));
  EXPECT_EQ(names(), (std::set<std::string>{"step-1000000", "step-1000001"}));
  Content content(0);
  EXPECT_EQ(load(content).training_step, 1'000'001);
}

TEST_F(Checkpoints, RemainsOfAnInterruptedWriteAreIgnoredAndRemoved) {
  save(1, 1);
  fs::create_directory(directory() / ".farandole-writing-step-000002-77");
  write_bytes(directory() / ".farandole-writing-step-000002-77" / "model.safetensors", "half");
  fs::create_directory(directory() / "step-000003");  // no manifest: not a checkpoint
  write_bytes(directory() / "step-4x", "not a checkpoint");
  EXPECT_EQ(store_.latest().value().filename(), "step-000001");
  store_.prepare();
  EXPECT_EQ(names(), (std::set<std::string>{"step-000001", "step-000003", "step-4x"}));
}

TEST_F(Checkpoints, ExistingCheckpointsAreNotOverwritten) {
  save(1, 1);
  EXPECT_TRUE(contains(message_of<DataError>([&] { save(1, 2); }), "exists already"));
  Content content(0);
  load(content);
  EXPECT_EQ(content, Content(1));
}

TEST_F(Checkpoints, EveryAlteredBitOfATensorIsFoundAndNamed) {
  save(1, 1);
  const fs::path file = store_.latest().value() / "model.safetensors";
  const std::string whole = read_bytes(file);
  for (std::size_t byte = whole.size() - 64; byte < whole.size(); ++byte) {
    std::string bytes = whole;
    bytes[byte] ^= 4;
    write_bytes(file, bytes);
    const std::string tensor = byte < whole.size() - 16 ? "'0.dense.weight' is altered" : "'0.dense.bias' is altered";
    EXPECT_TRUE(contains(refusal<DataError>(), tensor));
  }
}

TEST_F(Checkpoints, AnyAlteredOrMissingByteIsFound) {
  save(1, 1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const fs::path file = store_.latest().value() / name;
    const std::string whole = read_bytes(file);
    for (std::size_t byte = 0; byte + 1 < whole.size(); byte += 3) {  // the manifest ends with a line feed
      std::string bytes = whole;
      bytes[byte] ^= 1;
      // White space is not part of what a JSON text says.
      if (whole[byte] == ' ' || whole[byte] == '\n') continue;
      write_bytes(file, bytes);
      EXPECT_TRUE(contains(refusal<DataError>(), name)) << name << ", byte " << byte;
      write_bytes(file, whole.substr(0, byte));
      EXPECT_TRUE(contains(refusal<DataError>(), name)) << name << ", cut to " << byte;
    }
    write_bytes(file, whole);
  }
  Content content(0);
  load(content);
  EXPECT_EQ(content, Content(1));
}

TEST_F(Checkpoints, ACutFileNamesTheTensor) {
  save(1, 1);
  const fs::path file = store_.latest().value() / "optimizer.safetensors";
  fs::resize_file(file, fs::file_size(file) - 10);
  EXPECT_TRUE(contains(refusal<DataError>(), "'0.dense.weight.momentum' is cut"));
  fs::remove(file);
  EXPECT_TRUE(contains(refusal<DataError>(), "optimizer.safetensors"));
}

TEST_F(Checkpoints, AnotherModelIsRefusedWithBothTensors) {
  save(1, 1);
  Content content(0);
  std::vector<CheckpointTensor> other = content.model();
  other[1].shape = {2, 2};
  const auto load_other = [&] { store_.load(store_.latest().value(), kOptions, other, content.optimizer()); };
  EXPECT_TRUE(
      contains(message_of<InvalidArgument>(load_other),
               "its tensor 1 is '0.dense.bias' of shape 4 and type f32, the model's is '0.dense.bias' of shape 2x2"));
  other.pop_back();
  EXPECT_TRUE(contains(message_of<InvalidArgument>(load_other), "the model's is nothing"));
  std::vector<double> wide(12);
  other = {{"0.dense.weight", {3, 4}, wide}};
  EXPECT_TRUE(contains(message_of<InvalidArgument>(load_other), "type f64"));
  EXPECT_EQ(content, Content(0));
}

TEST_F(Checkpoints, OtherOptionsAreRefusedByName) {
  save(1, 1);
  Content content(0);
  const std::string message = message_of<InvalidArgument>([&] {
    load(content, {{"seed", "1"}, {"global batch", "64"}});
  });
  EXPECT_TRUE(contains(message, "global batch 128, but this training has 64"));
}

TEST_F(Checkpoints, AFileThatCannotBeWrittenLosesNothing) {
  save(1, 1);
  // A limit on the size of files stands for a full disk: write() fails in the middle of a tensor.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    save(2, 2);
  } catch (const DataError& error) {
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(contains(message, "step-000002 could not be written"));
  EXPECT_EQ(names(), (std::set<std::string>{"step-000001"}));
  Content content(0);
  load(content);
  EXPECT_EQ(content, Content(1));
}

TEST_F(Checkpoints, AnUnusableDirectoryIsNamed) {
  write_bytes(directory() / "file", "");
  CheckpointStore store(directory() / "file" / "below", 1);
  EXPECT_TRUE(contains(message_of<DataError>([&] { store.prepare(); }), "below"));
}

TEST_F(Checkpoints, ASecondWriterIsRefusedByHostAndProcess) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  {
    CheckpointStore second(directory(), 2);
    const std::string message = message_of<InvalidArgument>([&] { second.prepare(); });
    EXPECT_TRUE(contains(message, directory().string() + " is in use"));
    EXPECT_TRUE(contains(message, "host " + std::string(host) + ", pid " + std::to_string(getpid()) + ", since 20"));
  }
  save(1, 1);
  store_ = CheckpointStore(directory(), 2);
  CheckpointStore next(directory(), 2);
  next.prepare();
  EXPECT_EQ(next.latest().value().filename(), "step-000001");
}

TEST_F(Checkpoints, WritingNeedsTheLock) {
  CheckpointStore reader(directory(), 2);
  Content content(1);
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { reader.save({}, content.model(), content.optimizer()); }),
                       "prepare()"));
  save(1, 1);
  // Reading does not.
  reader.load(reader.latest().value(), kOptions, content.model(), content.optimizer());
}

/// Runs `body` in a child that then waits to be killed; returns its process id when `body` has ended.
template <class Body>
pid_t child_that_stays(const Body& body) {
  int ready[2];
  EXPECT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    body();
    (void)!write(ready[1], "", 1);
    for (;;) pause();
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  return child;
}

void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(Checkpoints, KilledOwnerFreesTheDirectoryDespiteItsChildren) {
  const fs::path place = directory() / "owned";
  int orphans[2];
  ASSERT_EQ(pipe(orphans), 0);
  const pid_t owner = child_that_stays([&] {
    static CheckpointStore owned(place, 2);
    owned.prepare();
    if (fork() != 0) return;
    // By itself: it has let go of the lock by then, whenever its parent is killed.
    const pid_t self = getpid();
    (void)!write(orphans[1], &self, sizeof self);
    for (;;) pause();
  });
  pid_t orphan = 0;
  ASSERT_EQ(read(orphans[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  CheckpointStore next(place, 2);
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { next.prepare(); }), "pid " + std::to_string(owner)));
  end(owner);
  EXPECT_EQ(kill(orphan, 0), 0);
  EXPECT_NO_THROW(next.prepare());
  kill(orphan, SIGKILL);
  close(orphans[0]);
  close(orphans[1]);
}

TEST_F(Checkpoints, AForkedChildNeitherWritesNorFreesTheDirectory) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Content content(1);
    try {
      store_.save({}, content.model(), content.optimizer());
      _exit(1);
    } catch (const InvalidArgument&) {
    }
    store_ = CheckpointStore(directory(), 2);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  CheckpointStore second(directory(), 2);
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { second.prepare(); }), "is in use"));
  save(1, 1);
}

TEST_F(Checkpoints, NobodyElseMayReadThem) {
  const mode_t before = umask(0);
  const fs::path place = directory() / "private";
  CheckpointStore store(place, 2);
  store.prepare();
  Content content(1);
  store.save({.training_step = 1}, content.model(), content.optimizer());
  umask(before);
  const auto mode = [](const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777U;
  };
  EXPECT_EQ(mode(place), 0700U);
  for (const auto& entry : fs::recursive_directory_iterator(place)) {
    EXPECT_EQ(mode(entry.path()), entry.is_directory() ? 0700U : 0600U) << entry.path();
  }
}

TEST_F(Checkpoints, UnremovableOldCheckpointIsAWarning) {
  save(1, 1);
  save(2, 2);
  // A file stands where the old one would go first.
  write_bytes(directory() / ".farandole-writing-removed-step-000001", "");
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(save(3, 3));
  EXPECT_NO_THROW(save(4, 4));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "the old checkpoint " + (directory() / "step-000001").string() + " cannot be removed"));
  EXPECT_EQ(log.find("cannot be removed"), log.rfind("cannot be removed")) << "said more than once: " << log;
  EXPECT_EQ(names(), (std::set<std::string>{".farandole-writing-removed-step-000001", "step-000001", "step-000003",
                                            "step-000004"}));
  Content content(0);
  EXPECT_EQ(load(content).training_step, 4);
}

TEST_F(Checkpoints, TwoTensorsOfOneNameAreRefused) {
  Content content(1);
  std::vector<CheckpointTensor> model = content.model();
  model.push_back(model.front());
  EXPECT_TRUE(contains(message_of<InvalidArgument>([&] { store_.save({}, model, content.optimizer()); }),
                       "two tensors named '0.dense.weight'"));
}

}  // namespace
}  // namespace farandole::trainer
