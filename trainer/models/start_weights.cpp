#include "trainer/models/start_weights.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/name_patterns.hpp"
#include "trainer/models/layer_calls.hpp"
#include "trainer/models/weights_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

// The tensors that have a name which a pattern matches. Throws UserError for a pattern that matches none.
TensorSet matching(const std::vector<NamedTensor>& tensors, const std::vector<std::string>& patterns,
                   const std::string& key, const char* what) {
  TensorSet found;
  for (const std::string& pattern : patterns) {
    bool matches = false;
    for (const auto& [name, tensor] : tensors) {
      if (!matches_name(pattern, name)) continue;
      found.insert(tensor.unsafeGetTensorImpl());
      matches = true;
    }
    if (matches) continue;
    std::vector<std::string> names;
    for (const NamedTensor& one : tensors) names.push_back(one.name);
    const std::vector<std::string> like = names_like(pattern, names, 5);
    throw UserError(fmt::format("{}: no {} has a name that \"{}\" matches: of {} names the nearest are {}", key, what,
                                pattern, names.size(), listed(like)));
  }
  return found;
}

std::vector<NamedTensor> parameters_with_all_names(const Model& model) {
  TensorSet parameters;
  for (const NamedTensor& one : model.parameters()) parameters.insert(one.tensor.unsafeGetTensorImpl());
  std::vector<NamedTensor> named = with_all_names(model);
  std::erase_if(named, [&](const NamedTensor& one) { return !parameters.contains(one.tensor.unsafeGetTensorImpl()); });
  return named;
}

void freeze(const Model& model, const std::vector<std::string>& patterns) {
  const TensorSet frozen = matching(parameters_with_all_names(model), patterns, "model.freeze", "parameter");
  const std::vector<NamedTensor> parameters = model.parameters();
  const bool trains = std::ranges::any_of(parameters, [&](const NamedTensor& one) {
    return one.tensor.requires_grad() && !frozen.contains(one.tensor.unsafeGetTensorImpl());
  });
  if (!trains)
    throw UserError(fmt::format(
        "model.freeze leaves nothing to train: its patterns match every parameter that would be, among them {}; write "
        "patterns that leave out what is to be trained",
        parameters.back().name));
  for (const NamedTensor& one : parameters) {
    if (frozen.contains(one.tensor.unsafeGetTensorImpl())) at::Tensor(one.tensor).set_requires_grad(false);
  }
}

}  // namespace

void start_weights(Model& model, const ModelConfiguration& configuration, std::uint64_t seed) {
  if (configuration.weights.empty() && !configuration.reinitialize.empty() && !model.layer_calls())
    throw UserError("model.reinitialize: all weights of model.kind = \"" + configuration.kind +
                    "\" are new without model.weights: write that, or leave model.reinitialize out");
  const TensorSet fresh =
      matching(with_all_names(model), configuration.reinitialize, "model.reinitialize", "parameter or buffer");
  if (!configuration.weights.empty()) load_weights(model, configuration, fresh);
  reinitialize(model, fresh, seed);
  if (!configuration.freeze.empty()) freeze(model, configuration.freeze);
}

std::string trained_part(const Model& model, const ModelConfiguration& configuration) {
  if (configuration.freeze.empty()) return {};
  std::int64_t all = 0;
  std::int64_t trained = 0;
  std::int64_t numbers = 0;
  std::int64_t trained_numbers = 0;
  for (const auto& [name, tensor] : model.parameters()) {
    const std::int64_t counts = tensor.requires_grad() ? 1 : 0;
    all += 1;
    trained += counts;
    numbers += tensor.numel();
    trained_numbers += counts * tensor.numel();
  }
  return fmt::format("{} of {} parameters are trained, {} of {} numbers; the others are frozen", trained, all,
                     trained_numbers, numbers);
}

}  // namespace onebatch
