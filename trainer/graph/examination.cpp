#include "trainer/graph/examination.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace onebatch {
namespace {

constexpr const char* k_trait_names[] = {"draws_unkeyed", "changes_parameter", "keeps_data", "counts_forwards",
                                         "hidden_state",  "sparse_gradient",   "reads_data", "validates_by_batch"};

std::string reason_of(const Finding& finding) {
  switch (finding.trait) {
    case Trait::changes_parameter:
      return finding.place() + ", changes the parameter " + finding.tensor +
             " in the forward: every rank sees other samples, so their copies of the model come apart. Write the embedding without "
             "max_norm, or keep to what the optimizer does (optimizer.groups with weight_decay)";
    case Trait::keeps_data:
      return finding.place() + ", keeps something of the samples in the buffer " + finding.tensor +
             " in training: each micro-batch would change it, where one large batch changes it once. Write BatchNorm, or a layer without "
             "running statistics (InstanceNorm with track_running_stats=False, GroupNorm)";
    case Trait::counts_forwards:
      return finding.place() + ", changes the buffer " + finding.tensor +
             " with every forward: a step has as many as its plan has micro-batches, so what it counts would depend on the plan. Leave it "
             "out of the forward, or make it a data.inputs tensor";
    case Trait::hidden_state:
      return "the forward changes the attribute " + finding.tensor +
             ", which is no buffer: it follows the micro-batches and is in no checkpoint. Compute it anew in every forward";
    default: return {};
  }
}

}  // namespace

std::string Finding::place() const {
  return (op.empty() ? "the forward" : op) + (layer.empty() ? " at the model's beginning" : ", after " + layer);
}

bool Examination::has(Trait trait) const {
  return std::ranges::any_of(findings, [&](const Finding& finding) { return finding.trait == trait; });
}

std::string Examination::to_text() const {
  std::string text = examined ? "examined\n" : "failed\t" + why_not.substr(0, why_not.find('\n')) + "\n";
  for (const Finding& finding : findings) {
    text += std::string("finding\t") + k_trait_names[static_cast<std::size_t>(finding.trait)] + "\t" + finding.op + "\t" + finding.layer +
            "\t" + finding.tensor + "\n";
  }
  for (const std::string& name : batch_norm_layers) text += "layer\t" + name + "\n";
  for (const std::string& name : batch_norm_statistics) text += "statistic\t" + name + "\n";
  return text;
}

Examination Examination::from_text(const std::string& text) {
  Examination examination;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words;
    std::istringstream parts(line + "\t");
    for (std::string word; std::getline(parts, word, '\t');) words.push_back(word);
    if (words.at(0) == "examined") examination.examined = true;
    if (words.at(0) == "failed") examination.why_not = words.at(1);
    if (words.at(0) == "layer") examination.batch_norm_layers.push_back(words.at(1));
    if (words.at(0) == "statistic") examination.batch_norm_statistics.push_back(words.at(1));
    if (words.at(0) != "finding") continue;
    const auto* trait = std::ranges::find(k_trait_names, words.at(1));
    examination.findings.push_back({static_cast<Trait>(trait - std::begin(k_trait_names)), words.at(2), words.at(3), words.at(4)});
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
