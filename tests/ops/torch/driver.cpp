// SPDX-License-Identifier: Apache-2.0
// usage: farandole_torch_case CASE.json OUTPUT.safetensors DATA.safetensors...
// Several files of data are the model's inputs, joined.
// Trains as CASE says, and writes everything that torch must reproduce. With S training steps of B samples in all:
//   loss, rate {S}            mean loss and learning rate of each training step
//   order {B}                 indices of the samples, batch by batch
//   mask.I {B, …}             factors of the dropout layer I of the model, in the order of `order`
//   parameter.NAME {S+1, …}   values before the first and after each training step; the same for statistic.NAME
//   average.NAME {S, …}       moving average of the parameter after each training step
//   evaluation {1}            loss of the trained model over all samples
//   outputs {samples, …}      predictions of the trained model for all samples, in the order of the data
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <span>
#include <string>

#include "case.h"
#include "farandole/trainer/loader.h"
#include "farandole/trainer/random.h"
#include "safetensors.h"

namespace farandole::trainer::test {
namespace {

/// A tensor that grows along its first axis.
struct Record {
  Shape shape = {};  ///< of a row
  std::vector<double> values = {};

  void append(std::span<const double> row) { values.insert(values.end(), row.begin(), row.end()); }
};
using Records = std::map<std::string, Record>;

void record(const std::string& prefix, const std::vector<NamedSpan>& layout, std::span<const double> values,
            Records& records) {
  for (const NamedSpan& span : layout) {
    Record& to = records[prefix + span.name];
    to.shape = span.shape;
    to.append(values.subspan(span.first, span.count));
  }
}

void record_model(Model<double>& model, Records& records) {
  record("parameter.", model.parameter_layout(), model.parameters().host(), records);
  record("statistic.", model.statistic_layout(), model.statistics().host(), records);
}

/// Adds noise to the initial parameters, so that scales are not 1 and shifts not 0.
void add_noise(Model<double>& model) {
  const CounterRandom random(3, random_stream(RandomPurpose::kOther, {}));
  std::uint64_t counter = 0;
  for (double& value : model.parameters().host()) value += 0.1 * random.normal(counter++);
}

/// Records the factors that the model's dropout layers draw for a batch, by a forward pass of ones.
void record_masks(const std::vector<DropoutPlace>& dropouts, const Pass& pass, std::int64_t samples, Records& records) {
  for (const DropoutPlace& each : dropouts) {
    Tensor<double> ones(samples, each.shape), factors(samples, each.shape);
    std::fill(ones.host().begin(), ones.host().end(), 1.0);
    Pass own = pass;
    own.layer = each.number;
    each.layer->forward(own, ones, factors);
    Record& to = records[fmt::format("mask.{}", each.number)];
    to.shape = each.shape;
    to.append(factors.host());
  }
}

/// Records the order of the samples, which depends only on the seed, and the masks of dropout.
void record_draws(const CaseModel& model, const Dataset& data, const TrainerOptions& options, Records& records) {
  const auto dropouts = model.dropouts(data.shape());
  Loader loader(data.size(), options.global_batch, options.seed);
  for (std::int64_t step = 0; step < options.epochs * loader.batches_per_epoch(); ++step) {
    loader.start_epoch(step / loader.batches_per_epoch());
    const auto batch = loader.batch(step % loader.batches_per_epoch());
    for (const std::uint32_t sample : batch) records["order"].values.push_back(sample);
    record_masks(dropouts, {.training = true, .seed = options.seed, .training_step = step},
                 static_cast<std::int64_t>(batch.size()), records);
  }
}

/// A case, apart from the number of replicas.
struct Case {
  CaseModel model;
  Json loss;
  TrainerOptions options;
  std::shared_ptr<const Dataset> data;
  std::int64_t record_every = 1;  ///< training steps between records of parameters, statistics and averages
};

/// Trains on one replica, and records the course on rank 0.
void train(Communicator& replica, const Case& training, Records& records) {
  TrainerOptions options = training.options;
  Model<double> model = training.model.make(training.data->shape());
  const auto loss = make_loss(training.loss, model.outputs());
  model.initialize(options.seed);
  add_noise(model);
  options.initialize = false;
  const bool records_course = replica.rank() == 0;
  if (records_course) record_model(model, records);
  Trainer<double>* observed = nullptr;
  if (records_course) {
    options.on_step = [&](const StepReport& report) {
      records["loss"].values.push_back(report.loss);
      records["rate"].values.push_back(report.learning_rate);
      if (report.training_step % training.record_every != 0) return;
      record_model(observed->model(), records);
      const auto average = observed->averaged_parameters();
      if (!average.empty()) record("average.", observed->model().parameter_layout(), average, records);
    };
  }
  Trainer<double> trainer(replica, std::move(model), training.data, nullptr, options, loss);
  observed = &trainer;
  trainer.fit();
  const double evaluation = trainer.evaluate(*training.data).loss;
  const Tensor<double> outputs = trainer.predict(*training.data);
  if (records_course) {
    records["evaluation"].values.push_back(evaluation);
    records["outputs"].shape = outputs.shape();
    records["outputs"].append(outputs.host());
  }
}

void write(Records& records, const std::filesystem::path& file) {
  std::vector<CheckpointTensor> tensors;
  for (auto& [name, each] : records) {
    Shape shape{static_cast<std::int64_t>(each.values.size()) / elements(each.shape)};
    shape.insert(shape.end(), each.shape.begin(), each.shape.end());
    tensors.push_back({name, shape, BufferView(each.values)});
  }
  write_safetensors(file, tensors);
}

std::shared_ptr<const Dataset> make_data(Fields& fields, std::span<char* const> files) {
  std::int32_t classes = 0;
  fields.read("classes", classes);
  bool targets_are_probabilities = false;
  fields.read("targets_are_probabilities", targets_are_probabilities);
  std::vector<std::shared_ptr<const Dataset>> all;
  for (const char* file : files) {
    all.push_back(std::make_shared<const CaseData>(file, classes, targets_are_probabilities));
  }
  return all.size() == 1 ? all[0] : joined_inputs(all);
}

void run(const char* case_file, const char* output_file, std::span<char* const> data_files) {
  std::ifstream stream(case_file);
  const Json object = Json::parse(stream);
  Fields fields(object, "the case");
  Case training{CaseModel(fields), fields.get<Json>("loss"), make_options(fields.get<Json>("options")),
                make_data(fields, data_files)};
  fields.read("record_every", training.record_every);
  int replicas = 1;
  fields.read("replicas", replicas);
  fields.finish();
  Records records;
  record_draws(training.model, *training.data, training.options, records);
  run_replicas(replicas, [&](Communicator& replica) { train(replica, training, records); });
  write(records, output_file);
}

}  // namespace
}  // namespace farandole::trainer::test

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: farandole_torch_case CASE.json OUTPUT.safetensors DATA.safetensors...\n");
    return 2;
  }
  try {
    farandole::trainer::test::run(argv[1], argv[2], std::span(argv + 3, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "farandole_torch_case: {}\n", error.what());
    return 1;
  }
  return 0;
}
