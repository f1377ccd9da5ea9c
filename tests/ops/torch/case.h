// SPDX-License-Identifier: Apache-2.0
// A training that a JSON file describes: layers, loss, options and data. cases.py has all of them.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "farandole/trainer/outputs.h"
#include "farandole/trainer/trainer.h"
#include "fields.h"

namespace farandole::trainer::test {

/// Makes layers from a list of objects {"kind": "conv2d", "channels": 4, …}; "kind" is the maker's name in layers.h,
/// and the other fields are its arguments and options. An object whose kind is a name of models.h gives all layers of
/// that model.
LayerList<double> make_layers(const Json& list);

/// A dropout layer of a model: its number, which decides on its random numbers, and the shape of its samples.
struct DropoutPlace {
  std::uint64_t number = 0;
  std::unique_ptr<Layer<double>> layer;
  Shape shape;
};

/// Builds a graph from an object with four lists, and finds its dropout layers:
///   inputs   {"name", "shape"}
///   shared   {"name", "layer"}
///   nodes    {"name", "operation", "from"}: from a list of names, by a layer, several layers, the name of a shared
///            layer, or {"kind": "sum"}, "multiply", "concatenate" or "slice"
///   outputs  {"name", "node"}
/// A node or shared layer whose name begins with a digit has no name in the graph.
GraphBuilder<double> make_graph(const Json& object, std::vector<DropoutPlace>& dropouts);

/// The model of a case, which has "layers" or a "graph".
class CaseModel {
 public:
  explicit CaseModel(Fields& fields);
  /// @param input  shape of the samples
  Model<double> make(const Shape& input) const;
  std::vector<DropoutPlace> dropouts(const Shape& input) const;

 private:
  Json layers_ = Json::array(), graph_;
};

/// Makes a loss from an object {"kind": "huber_loss", "delta": 0.5}. A combined_loss has "parts", a list of objects
/// {"output", "loss", "weight"}, and "with_labels". @param outputs  of the model
LossPointer<double> make_loss(const Json& object, const std::vector<GraphPort>& outputs);

/// Reads the fields of TrainerOptions that cases set. Evaluates nothing during the training.
TrainerOptions make_options(const Json& object);

/// Samples from a safetensors file with the tensors "inputs" and, if there are any, "labels", "targets" and "weights".
class CaseData final : public Dataset {
 public:
  /// @param classes  number of classes, if there are labels
  CaseData(const std::filesystem::path& file, std::int32_t classes, bool targets_are_probabilities);
  std::int64_t size() const override { return size_; }
  const Shape& shape() const override { return inputs_.shape; }
  std::int32_t classes() const override { return labels_.values.empty() ? 0 : classes_; }
  std::int64_t labels_per_sample() const override { return elements(labels_.shape); }
  const Shape& target_shape() const override { return targets_.shape; }
  bool targets_are_probabilities() const override { return targets_are_probabilities_; }
  void gather(std::span<const std::uint32_t> samples, Batch<float>& batch) const override;
  void gather(std::span<const std::uint32_t> samples, Batch<double>& batch) const override;

 private:
  /// A tensor whose first axis are the samples.
  struct Column {
    Shape shape = {};  ///< of a sample
    std::vector<double> values = {};
  };
  template <class Scalar>
  void gather_all(std::span<const std::uint32_t> samples, Batch<Scalar>& batch) const;
  template <class Scalar>
  static void gather_column(const Column& column, std::span<const std::uint32_t> samples, Tensor<Scalar>& to);

  const std::int32_t classes_;
  const bool targets_are_probabilities_;
  std::int64_t size_ = 0;
  Column inputs_, labels_, targets_, weights_;
};

}  // namespace farandole::trainer::test
