#include "trainer/models/weights_report.hpp"

#include "trainer/base/name_patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace onebatch {
namespace {

constexpr std::size_t k_most = 10;

using Line = std::function<std::string(const MisfitTensor&)>;

std::string lines(const std::vector<MisfitTensor>& tensors, const Line& line, const std::string& of_the_rest) {
  std::string text;
  for (std::size_t i = 0; i < std::min(k_most, tensors.size()); ++i) text += "\n  " + line(tensors[i]);
  if (tensors.size() > k_most) text += fmt::format("\n  and {}{}", tensors.size() - k_most, of_the_rest);
  return text;
}

// What one name has before the other: "bert." of "bert.fc.weight" and "fc.weight".
std::string prefix_between(const std::string& longer, const std::string& shorter) {
  const bool fits = longer.size() > shorter.size() && longer.ends_with("." + shorter);
  return fits ? longer.substr(0, longer.size() - shorter.size()) : "";
}

// With which a tensor of the file has both name and shape of one in the model; empty: there is none.
std::string likely_prefix(const WeightsMisfit& misfit) {
  for (const MisfitTensor& missing : misfit.missing) {
    for (const MisfitTensor& unknown : misfit.unknown) {
      if (unknown.shape != missing.shape) continue;
      const std::string of_file = prefix_between(unknown.name, missing.name);
      const std::string of_model = prefix_between(missing.name, unknown.name);
      if (!of_file.empty() || !of_model.empty()) return of_file + of_model;
    }
  }
  return {};
}

// Of the layers that lack their weights, as long as they are few: "\"fc.*\"".
std::string patterns_of(const WeightsMisfit& misfit) {
  constexpr std::size_t k_most_patterns = 3;
  std::vector<std::string> patterns;
  for (const auto& list : {misfit.missing, misfit.reshaped}) {
    for (const MisfitTensor& one : list) {
      const std::size_t dot = one.name.rfind('.');
      const std::string pattern = dot == std::string::npos ? one.name : one.name.substr(0, dot + 1) + "*";
      if (std::ranges::find(patterns, pattern) == patterns.end()) patterns.push_back(pattern);
    }
  }
  if (patterns.size() > k_most_patterns) return {};
  std::string text;
  for (const std::string& pattern : patterns) text += (text.empty() ? "\"" : ", \"") + pattern + "\"";
  return text;
}

std::string advice(const WeightsMisfit& misfit) {
  if (const std::string prefix = likely_prefix(misfit); !prefix.empty())
    return "\nnames differ by what they begin with: write model.weights_prefix = \"" + prefix + "\"";
  std::string text;
  if (!misfit.missing.empty() || !misfit.reshaped.empty()) {
    const std::string patterns = patterns_of(misfit);
    text += "\nto begin these anew " + (patterns.empty() ? std::string("name them in model.reinitialize, as [\"fc.*\"]")
                                                         : "write model.reinitialize = [" + patterns + "]");
  }
  if (!misfit.unknown.empty())
    text +=
        "\nto leave out what the model has not, write model.weights_prefix, where all others begin alike, or save the "
        "file without it";
  return text;
}

}  // namespace

std::string misfit_text(const WeightsMisfit& misfit) {
  std::string text = lines(
      misfit.missing, [](const MisfitTensor& one) { return one.name + " " + one.shape + " is missing"; },
      " more are missing");
  text += lines(
      misfit.reshaped,
      [](const MisfitTensor& one) { return one.name + " is " + one.shape + ", the model's is " + one.model_shape; },
      " more have another shape");
  text += lines(
      misfit.unknown, [](const MisfitTensor& one) { return one.name + " " + one.shape + " is not in the model"; },
      " more are not in the model");
  if (text.empty()) return text;
  if (!misfit.left_out.empty() && !misfit.missing.empty())
    text += "\nleft out, since they lack the prefix: " + listed(misfit.left_out, k_most);
  return text + advice(misfit);
}

}  // namespace onebatch
