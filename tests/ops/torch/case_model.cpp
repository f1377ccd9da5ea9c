// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <map>
#include <string>

#include "case.h"
#include "farandole/trainer/graph.h"

namespace farandole::trainer::test {
namespace {

std::unique_ptr<Layer<double>> make_layer(const Json& object) {
  LayerList<double> list = make_layers(Json::array({object}));
  return std::move(list.at(0));
}

/// The name that the graph gets; empty for none.
std::string name_in_graph(const std::string& name) {
  return std::isdigit(static_cast<unsigned char>(name.at(0))) != 0 ? "" : name;
}

/// Adds what the lists of an object describe to a graph.
class GraphMaker {
 public:
  explicit GraphMaker(std::vector<DropoutPlace>& dropouts) : dropouts_(dropouts) {}

  void add_input(Fields& fields) {
    const auto name = fields.get<std::string>("name");
    nodes_[name] = graph_.input(name, fields.get<Shape>("shape"));
  }
  void add_shared(Fields& fields) {
    const auto name = fields.get<std::string>("name");
    shared_[name] = graph_.shared(make_layer(fields.get<Json>("layer")), name_in_graph(name));
    ++layers_;
  }
  void add_node(Fields& fields) {
    const auto name = fields.get<std::string>("name");
    std::vector<Node> from;
    for (const auto& source : fields.get<std::vector<std::string>>("from")) from.push_back(nodes_.at(source));
    nodes_[name] = make_node(fields.get<Json>("operation"), from, name_in_graph(name));
  }
  void add_output(Fields& fields) {
    graph_.output(fields.get<std::string>("name"), nodes_.at(fields.get<std::string>("node")));
  }
  GraphBuilder<double> finish() { return std::move(graph_); }

 private:
  Node make_node(const Json& operation, const std::vector<Node>& from, const std::string& name) {
    if (operation.is_string()) return graph_.add(shared_.at(operation.get<std::string>()), from.at(0), name);
    if (operation.is_array()) {
      layers_ += operation.size();
      return graph_.add(make_layers(operation), from.at(0));
    }
    const std::string kind = operation.at("kind");
    if (kind == "sum") return graph_.sum(from, name);
    if (kind == "multiply") return graph_.multiply(from, name);
    if (kind == "concatenate") return graph_.concatenate(from, name);
    if (kind == "slice") return graph_.slice(from.at(0), operation.at("first"), operation.at("count"), name);
    if (kind == "dropout") dropouts_.push_back({layers_, make_layer(operation), graph_.shape(from.at(0))});
    ++layers_;
    return graph_.add(make_layer(operation), from.at(0), name);
  }

  GraphBuilder<double> graph_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, SharedLayer> shared_;
  std::uint64_t layers_ = 0;
  std::vector<DropoutPlace>& dropouts_;
};

}  // namespace

GraphBuilder<double> make_graph(const Json& object, std::vector<DropoutPlace>& dropouts) {
  GraphMaker maker(dropouts);
  Fields fields(object, "a graph");
  const auto add_all = [&](const char* list, void (GraphMaker::*add)(Fields&)) {
    const Json all = fields.get<Json>(list);
    for (const Json& each : all) {
      Fields entry(each, list);
      (maker.*add)(entry);
      entry.finish();
    }
  };
  add_all("inputs", &GraphMaker::add_input);
  add_all("shared", &GraphMaker::add_shared);
  add_all("nodes", &GraphMaker::add_node);
  add_all("outputs", &GraphMaker::add_output);
  fields.finish();
  return maker.finish();
}

CaseModel::CaseModel(Fields& fields) {
  const bool has_layers = fields.read("layers", layers_), has_graph = fields.read("graph", graph_);
  if (has_layers == has_graph) throw InvalidArgument("a case has either layers or a graph");
}

Model<double> CaseModel::make(const Shape& input) const {
  if (graph_.is_null()) return Model<double>(input, make_layers(layers_));
  std::vector<DropoutPlace> dropouts;
  return Model<double>(make_graph(graph_, dropouts));
}

std::vector<DropoutPlace> CaseModel::dropouts(const Shape& input) const {
  std::vector<DropoutPlace> found;
  if (!graph_.is_null()) {
    make_graph(graph_, found);
    for (const DropoutPlace& each : found) each.layer->prepare(each.shape);
    return found;
  }
  Shape shape = input;
  LayerList<double> all = make_layers(layers_);
  for (std::size_t number = 0; number < all.size(); ++number) {
    const Shape output = all[number]->prepare(shape);
    if (all[number]->name().starts_with("dropout")) found.push_back({number, std::move(all[number]), shape});
    shape = output;
  }
  return found;
}

}  // namespace farandole::trainer::test
