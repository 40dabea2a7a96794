#include "trainer/models/exported_draws.hpp"

#include "trainer/models/exported_schema.hpp"
#include "trainer/models/keyed_randomness.hpp"

#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>

#include <algorithm>

namespace onebatch {
namespace {

// In rising order: what a size of several tensors does is the most of theirs.
enum class Varies { never, with_the_batch, unknown };

struct Place {
  std::optional<std::int64_t> dimension;  // none: no size varies with the batch
};

bool drops_paths(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::bernoulli_" && schema.overload_name() == "float";
}

// Recurrent layers find their samples themselves.
bool drops_elements(const std::string& name) {
  return is_keyed_random(name) && (name.find("dropout") != std::string::npos || name.ends_with("attention"));
}

// Of a size that data decide ("u0") nothing is known.
Varies how_varies(const JsonReader& size, const std::vector<std::string>& batch) {
  const auto [tag, value] = tagged(size);
  if (tag == "as_int") return Varies::never;
  const std::string text = value.field("expr_str").text();
  const auto is_in = [&](const std::string& symbol) { return text.find("Symbol('" + symbol) != std::string::npos; };
  if (is_in("u")) return Varies::unknown;
  return std::ranges::any_of(batch, [&](const std::string& symbol) { return is_in(symbol + "'"); })
             ? Varies::with_the_batch
             : Varies::never;
}

// Of what it drops from: an attention's queries and keys, of which either may be shared. None: the program does not
// say.
std::optional<Place> place_of(const JsonReader& node, const GraphNames& names, const std::vector<std::string>& batch) {
  std::vector<Varies> found;
  const JsonReader inputs = node.field("inputs");
  for (std::size_t i = 0; i < inputs.array_size("arguments"); ++i) {
    const std::string name = inputs.item(i).field("name").text();
    const auto [tag, value] = tagged(inputs.item(i).field("arg"));
    if (tag != "as_tensor" || name == "value" || name == "attn_mask") continue;
    const auto sizes = names.sizes_of(value.field("name").text());
    if (!sizes) return std::nullopt;
    found.resize(std::max(found.size(), sizes->array_size("sizes")), Varies::never);
    for (std::size_t d = 0; d < sizes->json().size(); ++d)
      found[d] = std::max(found[d], how_varies(sizes->item(d), batch));
  }
  if (batch.empty() || std::ranges::find(found, Varies::unknown) != found.end()) return std::nullopt;
  const auto first = std::ranges::find(found, Varies::with_the_batch);
  if (first == found.end()) return Place{};
  return Place{std::distance(found.begin(), first)};
}

// Ones with a probability, else zeros, by operators that tapes know. In evaluation all are that probability, by which
// they are divided afterwards: so every path is what it is.
void drop_paths(torch::jit::Stack& stack, Phase phase) {
  const at::Tensor& ones = stack[0].toTensor();
  const double probability = stack[1].toDouble();
  if (phase == Phase::training)
    ones.copy_(at::dropout(at::ones(ones.sizes(), ones.options()), 1.0 - probability, /*train=*/true).ne(0));
  else
    ones.fill_(probability);
  stack.resize(1);
}

}  // namespace

bool drops_paths_by_sample(const JsonReader& node, const GraphNames& names, const std::vector<std::string>& batch) {
  return node.field("target").text().ends_with(".bernoulli_.float") && place_of(node, names, batch).has_value();
}

void ProgramDraws::look_at(Call& call, const c10::FunctionSchema& schema, const JsonReader& node,
                           const GraphNames& names) const {
  const bool paths = drops_paths(schema);
  if (!paths && !drops_elements(schema.name())) return;
  const auto place = place_of(node, names, batch_);
  if (!place) return;
  if (paths) call.make = [&mode = mode_](torch::jit::Stack& stack) { drop_paths(stack, mode.phase); };
  call.make = [make = std::move(call.make), dimension = place->dimension](torch::jit::Stack& stack) {
    const DrawnAlong along(dimension);
    make(stack);
  };
}

}  // namespace onebatch
