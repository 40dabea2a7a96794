#include "trainer/graph/examination.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr const char* k_trait_names[] = {"draws_unkeyed", "changes_parameter", "keeps_data", "counts_forwards",
                                         "hidden_state",  "sparse_gradient",   "reads_data", "validates_by_batch"};

std::string reason_of(const Finding& finding) {
  switch (finding.trait) {
    case Trait::changes_parameter:
      return finding.place() + ", changes the parameter " + finding.tensor +
             " in the forward: every rank sees other samples, so their copies of the model come apart. Write the "
             "embedding without max_norm, or keep to what the optimizer does (optimizer.groups with weight_decay)";
    case Trait::keeps_data:
      return finding.place() + ", keeps something of the samples in the buffer " + finding.tensor +
             " in training: each micro-batch would change it, where one large batch changes it once. Write BatchNorm, "
             "or a layer without running statistics (InstanceNorm with track_running_stats=False, GroupNorm)";
    case Trait::counts_forwards:
      return finding.place() + ", changes the buffer " + finding.tensor +
             " with every forward: a step has as many as its plan has micro-batches, so what it counts would depend on "
             "the plan. Leave it out of the forward, or make it a data.inputs tensor";
    case Trait::hidden_state:
      return "the forward changes the attribute " + finding.tensor +
             ", which is no buffer: it follows the micro-batches and is in no checkpoint. Compute it anew in every "
             "forward";
    default: return {};
  }
}

// A line of words; what would end one within it becomes a space.
std::string line_of(std::vector<std::string> words) {
  std::string line;
  for (std::string& word : words) {
    std::ranges::replace_if(
        word, [](char c) { return c == '\t' || c == '\n'; }, ' ');
    line += (line.empty() ? "" : "\t") + word;
  }
  return line + "\n";
}

// At least one.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream parts(line + "\t");
  for (std::string word; std::getline(parts, word, '\t');) words.push_back(word);
  return words;
}

Trait trait_of(const std::string& word) {
  const auto* found = std::ranges::find(k_trait_names, word);
  if (found == std::end(k_trait_names)) throw std::invalid_argument("no trait of a model: " + word);
  return static_cast<Trait>(found - std::begin(k_trait_names));
}

}  // namespace

std::string Finding::place() const {
  return (op.empty() ? "the forward" : op) + (layer.empty() ? " at the model's beginning" : ", after " + layer);
}

bool Examination::has(Trait trait) const {
  return std::ranges::any_of(findings, [&](const Finding& finding) { return finding.trait == trait; });
}

std::string Examination::to_text() const {
  std::string text = examined ? line_of({"examined"}) : line_of({"failed", why_not.substr(0, why_not.find('\n'))});
  for (const Finding& finding : findings)
    text += line_of(
        {"finding", k_trait_names[static_cast<std::size_t>(finding.trait)], finding.op, finding.layer, finding.tensor});
  for (const std::string& name : batch_norm_layers) text += line_of({"layer", name});
  for (const std::string& name : batch_norm_statistics) text += line_of({"statistic", name});
  return text;
}

Examination Examination::from_text(const std::string& text) {
  Examination examination;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = words_of(line);
    const auto is = [&](const char* kind, std::size_t num_words) {
      return words[0] == kind && words.size() == num_words;
    };
    if (is("examined", 1)) {
      examination.examined = true;
    } else if (is("failed", 2)) {
      examination.why_not = words[1];
    } else if (is("layer", 2)) {
      examination.batch_norm_layers.push_back(words[1]);
    } else if (is("statistic", 2)) {
      examination.batch_norm_statistics.push_back(words[1]);
    } else if (is("finding", 5)) {
      examination.findings.push_back({trait_of(words[1]), words[2], words[3], words[4]});
    } else {
      throw std::invalid_argument("no line of an examination: " + line);
    }
  }
  return examination;
}

std::vector<std::string> reasons_not_to_train(const Examination& examination, CountersRun counters) {
  std::vector<std::string> reasons;
  for (const Finding& finding : examination.findings) {
    if (finding.trait == Trait::counts_forwards && counters == CountersRun::once_per_step) continue;
    if (const std::string reason = reason_of(finding); !reason.empty()) reasons.push_back(reason);
  }
  return reasons;
}

}  // namespace onebatch
