#include "trainer/models/exported_signature.hpp"

#include "trainer/base/shape_text.hpp"
#include "trainer/models/exported_schema.hpp"
#include "trainer/models/size_guards.hpp"
#include "trainer/models/whole_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

namespace onebatch {
namespace {

constexpr std::size_t k_most_guards = 1000;
constexpr std::int64_t k_unasked_least = 2;  // what torch.export writes where nothing was asked for

// The names that the forward's arguments have, where the program says them.
std::vector<std::string> argument_names(const JsonReader& module) {
  std::vector<std::string> names;
  const JsonReader calls = module.field("module_call_graph");
  if (calls.array_size("modules") == 0 || !calls.item(0).has("signature")) return names;
  const JsonReader signature = calls.item(0).field("signature");
  if (!signature.has("forward_arg_names")) return names;
  const JsonReader list = signature.field("forward_arg_names");
  for (std::size_t i = 0; i < list.array_size("names"); ++i) names.push_back(list.item(i).text());
  return names;
}

ProgramInput input_of(const JsonReader& spec, const JsonReader& graph) {
  const auto [tag, value] = tagged(spec.field("arg"));
  if (tag != "as_tensor")
    spec.fail(
        "is an input that is no tensor: export the model with tensors alone, and what else it takes as a default");
  ProgramInput input;
  input.graph_name = value.field("name").text();
  input.name = input.graph_name;
  const JsonReader values = graph.field("tensor_values");
  if (!values.has(input.graph_name.c_str())) spec.fail("does not say what the input " + input.graph_name + " is");
  const JsonReader meta(values.json().at(input.graph_name), spec.place() + ": the input " + input.graph_name);
  input.type = scalar_type_in(meta.field("dtype"));
  const JsonReader sizes = meta.field("sizes");
  for (std::size_t d = 0; d < sizes.array_size("sizes"); ++d) input.sizes.push_back(size_in(sizes.item(d)));
  return input;
}

std::string size_name(std::size_t dimension) {
  return dimension == 0 ? "batch" : fmt::format("size{}", dimension);
}

// Names of a nested tuple, list or dictionary's leaves.
void name_leaves(const nlohmann::json& spec, const std::string& prefix, std::vector<std::string>& names) {
  const auto children = spec.is_object() ? spec.find("children_spec") : spec.end();
  const bool is_leaf = !spec.is_object() || spec.value("type", nlohmann::json()).is_null();
  if (is_leaf || children == spec.end() || !children->is_array()) return names.push_back(prefix);
  nlohmann::json keys;
  if (const auto context = spec.find("context"); context != spec.end() && context->is_string())
    keys = nlohmann::json::parse(context->get<std::string>(), nullptr, /*allow_exceptions=*/false);
  if (keys.is_array() && keys.size() == 2 && keys[0].is_array()) keys = nlohmann::json(keys[0]);
  for (std::size_t i = 0; i < children->size(); ++i) {
    const bool named = keys.is_array() && keys.size() == children->size() && keys[i].is_string();
    const std::string own = named ? keys[i].get<std::string>() : fmt::to_string(i);
    name_leaves((*children)[i], prefix.empty() ? own : prefix + "." + own, names);
  }
}

std::vector<std::string> output_names(const JsonReader& module) {
  std::vector<std::string> names;
  const JsonReader calls = module.field("module_call_graph");
  if (calls.array_size("modules") == 0 || !calls.item(0).has("signature")) return names;
  const std::string text = calls.item(0).field("signature").field("out_spec").text();
  const nlohmann::json tree = JsonReader::parse(text, calls.place() + ": the outputs' names");
  if (tree.is_array() && tree.size() == 2) name_leaves(tree[1], "", names);
  return names;
}

std::string listed(const ProgramOutputs& outputs) {
  std::string text;
  for (const ProgramOutput& output : outputs.outputs) {
    if (output.is_tensor) text += (text.empty() ? "\"" : ", \"") + output.name + "\"";
  }
  return text;
}

std::string listed(const std::vector<ProgramInput>& inputs) {
  std::string text;
  for (const ProgramInput& input : inputs) text += (text.empty() ? "" : ", ") + input.name;
  return text;
}

}  // namespace

ProgramSize size_in(const JsonReader& size) {
  const auto [tag, value] = tagged(size);
  if (tag == "as_int") return {value.integer(0, INT64_MAX), "", 1};
  static const std::regex k_form(R"(^(?:Mul\(Integer\(([0-9]{1,9})\), )?Symbol\('(\w+)'[^()]*\)\)?$)");
  const std::string text = value.field("expr_str").text();
  constexpr std::size_t k_longest = 200;
  std::smatch match;
  if (text.size() > k_longest || !std::regex_match(text, match, k_form))
    size.fail("is computed of other sizes (" + text.substr(0, k_longest) +
              "), which is not known: give it a torch.export.Dim of its own");
  return {0, match[2], match[1].matched ? std::max<std::int64_t>(std::stoll(match[1]), 1) : 1};
}

ProgramInputs::ProgramInputs(const JsonReader& program, std::string file) : file_(std::move(file)) {
  const JsonReader module = program.field("graph_module");
  const JsonReader specs = module.field("signature").field("input_specs");
  for (std::size_t i = 0; i < specs.array_size("inputs"); ++i) {
    const auto [kind, spec] = tagged(specs.item(i));
    if (kind == "user_input") inputs_.push_back(input_of(spec, module.field("graph")));
  }
  if (inputs_.empty()) specs.fail("have no tensor of the data among them");
  const auto names = argument_names(module);
  for (std::size_t i = 0; names.size() == inputs_.size() && i < names.size(); ++i) inputs_[i].name = names[i];
  const JsonReader ranges = program.field("range_constraints");
  if (!ranges.json().is_object()) ranges.fail("must be an object of ranges by symbol");
  for (const auto& [symbol, json] : ranges.json().items()) {
    const JsonReader range(json, ranges.place() + "." + symbol);
    ProgramRange& known = ranges_[symbol];
    if (range.has("min_val")) known.least = range.field("min_val").integer(INT64_MIN, INT64_MAX);
    if (range.has("max_val")) known.most = range.field("max_val").integer(INT64_MIN, INT64_MAX);
  }
  if (!program.has("guards_code")) return;  // before PyTorch 2.9
  const JsonReader guards = program.field("guards_code");
  for (std::size_t i = 0; i < guards.array_size("conditions") && guards_.size() < k_most_guards; ++i) {
    if (const std::string guard = guards.item(i).text(); guard_decides(guard)) guards_.push_back(guard);
  }
}

std::vector<std::string> ProgramInputs::batch_symbols() const {
  std::vector<std::string> symbols;
  for (const ProgramInput& input : inputs_) {
    if (!input.sizes.empty() && !input.sizes[0].symbol.empty()) symbols.push_back(input.sizes[0].symbol);
  }
  return symbols;
}

void ProgramInputs::check_batch() const {
  for (const ProgramInput& input : inputs_) {
    if (input.sizes.empty()) throw UserError(file_ + ": its input " + input.name + " is a number, and has no samples");
    if (input.sizes[0].symbol.empty())
      refuse(input, 0, fmt::format("was exported for {} samples at a time", input.sizes[0].fixed));
  }
}

void ProgramInputs::check_sample(const std::vector<std::int64_t>& sample_shape) const {
  check_batch();
  const ProgramInput& first = inputs_.front();
  if (first.sizes.size() != sample_shape.size() + 1)
    throw UserError(
        fmt::format("{}: its input {} has {} dimensions, and the data's first has {}, with that of samples: "
                    "export it with inputs as the data has them",
                    file_, first.name, first.sizes.size(), sample_shape.size() + 1));
  Bound bound;
  for (std::size_t d = 0; d < sample_shape.size(); ++d) check_size(first, d + 1, sample_shape[d], bound);
}

void ProgramInputs::check(const std::vector<at::Tensor>& given, const std::string& described) const {
  if (given.size() != inputs_.size())
    throw UserError(
        fmt::format("{}: the program takes {} tensor(s) ({}), but is given {} ({}): name the tensors that it "
                    "takes there, in its order",
                    file_, inputs_.size(), listed(inputs_), given.size(), described));
  Bound bound;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const ProgramInput& input = inputs_[i];
    const at::Tensor& tensor = given[i];
    if (static_cast<std::size_t>(tensor.dim()) != input.sizes.size())
      throw UserError(
          fmt::format("{}: its input {} was exported with {} dimensions, and is given {}: export it with "
                      "inputs as the data has them",
                      file_, input.name, input.sizes.size(), shape_text(tensor.sizes())));
    if (tensor.is_floating_point() != c10::isFloatingType(input.type))
      throw UserError(
          fmt::format("{}: its input {} was exported as {}, and is given {}: export it with inputs as "
                      "the data has them",
                      file_, input.name, c10::toString(input.type), c10::toString(tensor.scalar_type())));
    for (std::size_t d = 0; d < input.sizes.size(); ++d)
      check_size(input, d, tensor.size(static_cast<std::int64_t>(d)), bound);
  }
  check_guards(given);
}

void ProgramInputs::check_guards(const std::vector<at::Tensor>& given) const {
  const auto size_of = [&](std::string_view name, std::int64_t dimension) -> std::optional<std::int64_t> {
    const auto found = std::ranges::find(inputs_, name, &ProgramInput::name);
    if (found == inputs_.end()) return std::nullopt;
    const at::Tensor& tensor = given[static_cast<std::size_t>(found - inputs_.begin())];
    return dimension < tensor.dim() ? std::optional(tensor.size(dimension)) : std::nullopt;
  };
  for (const std::string& guard : guards_) {
    if (guard_holds(guard, size_of).value_or(true)) continue;
    std::string sizes;
    for (std::size_t i = 0; i < given.size(); ++i)
      sizes += fmt::format("{}{} {}", i == 0 ? "" : ", ", inputs_[i].name, shape_text(given[i].sizes()));
    throw UserError(fmt::format(
        "{}: it is the model only where {}, since the forward decides by that size, and is given {}: pad the "
        "data to such sizes, export it with an example of the data's, or write the forward without that "
        "condition",
        file_, guard, sizes));
  }
}

std::vector<at::Tensor> ProgramInputs::in_own_types(const std::vector<at::Tensor>& given) const {
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const ProgramInput& input = inputs_[i];
    if (const std::string why = beyond_type(given[i], input.type); !why.empty())
      throw UserError(fmt::format("{}: its input {} {}: export it with inputs as the data has them, or change the data",
                                  file_, input.name, why));
    own.push_back(in_whole_type(given[i], input.type));
  }
  return own;
}

void ProgramInputs::check_size(const ProgramInput& input, std::size_t dimension, std::int64_t size,
                               Bound& bound) const {
  const ProgramSize& known = input.sizes[dimension];
  if (known.symbol.empty()) {
    if (size != known.fixed)
      refuse(input, dimension, fmt::format("is fixed at {}, and is given {}", known.fixed, size));
    return;
  }
  if (size % known.factor != 0)
    refuse(input, dimension, fmt::format("is a multiple of {}, and is given {}", known.factor, size));
  const std::int64_t value = size / known.factor;
  if (const auto range = ranges_.find(known.symbol); range != ranges_.end()) {
    const auto [least, most] = range->second;
    if (value > most || (value < least && least > k_unasked_least))
      refuse(input, dimension, fmt::format("was exported for {} to {}, and is given {}", least, most, value));
  }
  const auto [other, is_new] = bound.emplace(known.symbol, value);
  if (!is_new && other->second != value)
    refuse(input, dimension,
           fmt::format("is the same as another input's dimension, which is {}, and is given {}", other->second, value));
}

void ProgramInputs::refuse(const ProgramInput& input, std::size_t dimension, const std::string& what) const {
  throw UserError(fmt::format("{}: dimension {} of its input {} {}: export it with {}", file_, dimension, input.name,
                              what, mended(input, dimension)));
}

std::string ProgramInputs::mended(const ProgramInput& input, std::size_t dimension) const {
  std::string text = "dynamic_shapes=(";
  for (const ProgramInput& one : inputs_) {
    std::string own;
    for (std::size_t d = 0; d < one.sizes.size(); ++d) {
      const bool is_meant = d == dimension && (&one == &input || (d == 0 && one.sizes[0].symbol.empty()));
      if (one.sizes[d].symbol.empty() && !is_meant) continue;
      own += fmt::format("{}{}: torch.export.Dim(\"{}\", min=1, max={})", own.empty() ? "" : ", ", d, size_name(d),
                         d == 0 ? 4096 : 65536);
    }
    text += "{" + own + "},";
    if (inputs_.size() > 1) text += " ";
  }
  while (text.back() == ' ') text.pop_back();
  return text + ")";
}

ProgramOutputs outputs_of(const JsonReader& program) {
  const JsonReader module = program.field("graph_module");
  const JsonReader specs = module.field("signature").field("output_specs");
  const auto names = output_names(module);
  ProgramOutputs found;
  for (std::size_t i = 0; i < specs.array_size("outputs"); ++i) {
    const auto [kind, spec] = tagged(specs.item(i));
    if (kind == "buffer_mutation") {
      found.updates.push_back({spec.field("buffer_name").text(), i});
      continue;
    }
    if (kind != "user_output" && kind != "loss_output")
      spec.fail("gives back what is of the kind \"" + kind + "\", which no training can use: export the forward alone");
    const JsonReader arg = spec.field("arg");
    const bool is_tensor = kind == "loss_output" || tagged(arg).tag == "as_tensor";
    const std::size_t place = found.outputs.size();
    const std::string name = place < names.size() ? names[place] : fmt::to_string(place);
    found.outputs.push_back({name.empty() ? "0" : name, i, is_tensor});
  }
  return found;
}

std::size_t chosen_output(const ProgramOutputs& outputs, const std::string& wanted, const std::string& file) {
  const auto named = [&](const std::string& name) {
    return std::ranges::find_if(outputs.outputs,
                                [&](const ProgramOutput& one) { return one.is_tensor && one.name == name; });
  };
  auto found = named(wanted.empty() ? "logits" : wanted);
  if (found == outputs.outputs.end() && !wanted.empty())
    throw UserError(
        fmt::format("model.output = \"{}\": {} returns {}: write one of them", wanted, file, listed(outputs)));
  if (found == outputs.outputs.end()) found = std::ranges::find_if(outputs.outputs, &ProgramOutput::is_tensor);
  if (found == outputs.outputs.end()) throw UserError(file + ": the program returns no tensor");
  return found->index;
}

}  // namespace onebatch
