#include "trainer/models/exported_description.hpp"

#include "trainer/models/exported.hpp"
#include "trainer/models/exported_archive.hpp"
#include "trainer/models/exported_draws.hpp"
#include "trainer/models/exported_schema.hpp"
#include "trainer/models/exported_signature.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace onebatch {
namespace {

std::string word_of(at::ScalarType type) {
  static const std::map<at::ScalarType, std::string> k_words = {{at::kByte, "uint8"},
                                                                {at::kChar, "int8"},
                                                                {at::kShort, "int16"},
                                                                {at::kInt, "int32"},
                                                                {at::kLong, "int64"},
                                                                {at::kHalf, "float16"},
                                                                {at::kFloat, "float32"},
                                                                {at::kDouble, "float64"},
                                                                {at::kComplexFloat, "complex64"},
                                                                {at::kComplexDouble, "complex128"},
                                                                {at::kBool, "bool"},
                                                                {at::kBFloat16, "bfloat16"}};
  const auto found = k_words.find(type);
  return found == k_words.end() ? c10::toString(type) : found->second;
}

// The file has no names of dimensions: the first one's is the batch's, another's is its place.
class SizeNames {
 public:
  explicit SizeNames(const ProgramInputs& inputs) {
    for (const ProgramInput& input : inputs.all()) {
      for (std::size_t d = 0; d < input.sizes.size(); ++d) add(input.sizes[d].symbol, d, inputs);
    }
  }

  [[nodiscard]] const std::vector<DescribedSize>& all() const { return sizes_; }
  [[nodiscard]] std::string text_of(const ProgramSize& size) const {
    if (size.symbol.empty()) return fmt::to_string(size.fixed);
    const auto found = names_.find(size.symbol);
    const std::string name = found == names_.end() ? "any" : found->second;
    return size.factor == 1 ? name : fmt::format("{}*{}", size.factor, name);
  }

 private:
  void add(const std::string& symbol, std::size_t dimension, const ProgramInputs& inputs) {
    if (symbol.empty() || names_.contains(symbol)) return;
    const std::string wanted = dimension == 0 ? "batch" : fmt::format("size{}", dimension);
    std::string name = wanted;
    const auto is_taken = [&] { return std::ranges::find(sizes_, name, &DescribedSize::name) != sizes_.end(); };
    for (int number = 2; is_taken(); ++number) name = fmt::format("{}_{}", wanted, number);
    names_.emplace(symbol, name);
    DescribedSize size{name, 1, std::nullopt};
    if (const auto range = inputs.ranges().find(symbol); range != inputs.ranges().end()) {
      constexpr std::int64_t k_unasked_least = 2;
      if (range->second.least > k_unasked_least) size.least = range->second.least;
      if (range->second.most != INT64_MAX) size.most = range->second.most;
    }
    sizes_.push_back(std::move(size));
  }

  std::map<std::string, std::string> names_;  // by symbol
  std::vector<DescribedSize> sizes_;
};

DescribedTensor described(const ProgramInput& input, const SizeNames& names) {
  DescribedTensor tensor{input.name, word_of(input.type), {}};
  for (const ProgramSize& size : input.sizes) tensor.sizes.push_back(names.text_of(size));
  return tensor;
}

// An output's sizes may be computed of the inputs' in any way: then they have no name.
std::string output_size(const JsonReader& size, const SizeNames& names) {
  try {
    return names.text_of(size_in(size));
  } catch (const UserError&) {
    return "computed";
  }
}

DescribedTensor described(const ProgramOutput& output, const JsonReader& module, const SizeNames& names) {
  DescribedTensor tensor{output.name, "", {}};
  const JsonReader argument =
      tagged(module.field("signature").field("output_specs").item(output.index)).value.field("arg");
  const JsonReader own = argument.has("as_tensor") ? argument.field("as_tensor") : argument;
  const JsonReader values = module.field("graph").field("tensor_values");
  if (!own.has("name") || !values.has(own.field("name").text().c_str())) return tensor;
  const JsonReader meta = values.field(own.field("name").text().c_str());
  tensor.type = word_of(scalar_type_in(meta.field("dtype")));
  const JsonReader sizes = meta.field("sizes");
  for (std::size_t d = 0; d < sizes.array_size("sizes"); ++d) tensor.sizes.push_back(output_size(sizes.item(d), names));
  return tensor;
}

using VisitNode = std::function<void(const nlohmann::json& node, const nlohmann::json& graph)>;

void for_each_node(const nlohmann::json& graph, const VisitNode& visit) {
  for (const nlohmann::json& node : graph.at("nodes")) {
    visit(node, graph);
    for (const nlohmann::json& input : node.at("inputs")) {
      if (input.at("arg").contains("as_graph")) for_each_node(input.at("arg").at("as_graph").at("graph"), visit);
    }
  }
}

// Of a layer that is to drop nothing there may be a call all the same.
bool drops_nothing(const std::string& op, const nlohmann::json& inputs) {
  for (const nlohmann::json& input : inputs) {
    const std::string name = input.value("name", "");
    if (name == "p" || name == "dropout" || name == "dropout_p") {
      const nlohmann::json& value = input.at("arg");
      return value.contains("as_float") && value.at("as_float") == 0.0;
    }
  }
  return op == "scaled_dot_product_attention";  // by default
}

DrawnBy drawn_by(const std::string& op, const nlohmann::json& node, const nlohmann::json& graph,
                 const std::vector<std::string>& batch) {
  if (is_keyed_random(op)) return DrawnBy::sample;
  const bool by_sample = drops_paths_by_sample(JsonReader(node, op), GraphNames(JsonReader(graph, "the graph")), batch);
  return by_sample ? DrawnBy::sample : DrawnBy::generator;
}

std::vector<DescribedRandomness> randomness_of(const nlohmann::json& graph, const std::vector<std::string>& batch) {
  static const std::string k_operators = "torch.ops.aten.";
  std::vector<DescribedRandomness> random;
  for_each_node(graph, [&](const nlohmann::json& node, const nlohmann::json& of_graph) {
    const auto target = node.at("target").get<std::string>();
    if (!target.starts_with(k_operators)) return;
    const std::size_t dot = target.find('.', k_operators.size());
    const std::string op = target.substr(k_operators.size(), dot - k_operators.size());
    std::string overload = dot == std::string::npos ? "" : target.substr(dot + 1);
    if (overload == "default") overload.clear();
    const auto known = c10::Dispatcher::singleton().findSchema({"aten::" + op, overload});
    if (!known || !known->hasTag(at::Tag::nondeterministic_seeded) || drops_nothing(op, node.at("inputs"))) return;
    const auto same = std::ranges::find(random, "aten::" + op, &DescribedRandomness::op);
    if (same == random.end())
      return random.push_back({"aten::" + op, 1, drawn_by("aten::" + op, node, of_graph, batch)});
    ++same->calls;
  });
  return random;
}

// In place, by operators, or anew and given back.
std::vector<std::string> changed_buffers(const JsonReader& program, const std::vector<std::string>& statistics) {
  const JsonReader module = program.field("graph_module");
  const JsonReader specs = module.field("signature").field("input_specs");
  std::map<std::string, std::string> buffers;
  for (std::size_t i = 0; i < specs.array_size("inputs"); ++i) {
    const auto [kind, spec] = tagged(specs.item(i));
    if (kind == "buffer") buffers.emplace(spec.field("arg").field("name").text(), spec.field("buffer_name").text());
  }
  std::vector<std::string> changed;
  const auto add = [&](const std::string& name) {
    for (const auto& list : {statistics, changed}) {
      if (std::ranges::find(list, name) != list.end()) return;
    }
    changed.push_back(name);
  };
  for_each_node(module.field("graph").json(), [&](const nlohmann::json& node, const nlohmann::json& /*graph*/) {
    const auto target = node.at("target").get<std::string>();
    const nlohmann::json& inputs = node.at("inputs");
    const bool in_place = target.substr(0, target.rfind('.')).ends_with('_');
    if (!in_place || inputs.empty() || !inputs[0].at("arg").contains("as_tensor")) return;
    const auto found = buffers.find(inputs[0].at("arg").at("as_tensor").at("name").get<std::string>());
    if (found != buffers.end()) add(found->second);
  });
  for (const BufferUpdate& update : outputs_of(program).updates) add(update.buffer);
  return changed;
}

void describe_state(const Model& model, ProgramDescription& description) {
  std::map<at::ScalarType, std::int64_t> elements;
  for (const auto& [name, tensor] : model.parameters()) {
    ++description.num_parameters;
    description.num_elements += tensor.numel();
    elements[tensor.scalar_type()] += tensor.numel();
    if (tensor.requires_grad()) description.num_trained_elements += tensor.numel();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& one) { return one.second; });
  if (most != elements.end()) description.type = word_of(most->first);
  description.batch_norm_layers = model.batch_norm_layers();
}

void describe_graph(const std::string& file, const std::vector<std::string>& statistics,
                    ProgramDescription& description) {
  const ExportedArchive archive = read_exported_archive(file);
  const JsonReader program(archive.program, file + ": its program");
  const ProgramInputs inputs(program, file);
  inputs.check_batch();
  const SizeNames names(inputs);
  for (const ProgramInput& input : inputs.all()) description.inputs.push_back(described(input, names));
  description.sizes = names.all();
  const JsonReader module = program.field("graph_module");
  const ProgramOutputs outputs = outputs_of(program);
  const std::size_t chosen = chosen_output(outputs, "", file);
  for (const ProgramOutput& output : outputs.outputs) {
    if (!output.is_tensor) continue;
    description.outputs.push_back(described(output, module, names));
    if (output.index == chosen) description.output = output.name;
  }
  description.random = randomness_of(module.field("graph").json(), inputs.batch_symbols());
  description.changed_buffers = changed_buffers(program, statistics);
}

}  // namespace

ProgramDescription describe_exported(const std::string& file) {
  ProgramDescription description;
  std::vector<std::string> statistics;
  {
    const auto model = load_exported({.file = file});
    describe_state(*model, description);
    statistics = model->running_statistics();
  }  // one copy of the weights at a time
  try {
    describe_graph(file, statistics, description);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(file + ": its graph is not as torch.export.save writes it (" + error.what() + "): save it anew");
  }
  return description;
}

}  // namespace onebatch
