// Results as a person reads them.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/profile.hpp"
#include "trainer/base/results.hpp"

#include <string>

namespace onebatch::launch {

/// The profile as a table, a line per rank.
std::string profile_table(const ClusterProfile& profile);
std::string verify_text(const VerifyReport& report);
/// What is about to be done, in a line.
std::string beginning_text(const Configuration& configuration, int num_ranks, const std::string& command);
/// What a run that has come to its end has done.
std::string result_text(const TrainResult& result);
/// ", accuracy 98.33 %, f1_macro 0.9831": what follows a validation's loss on its line, without what there is of each
/// class.
std::string metrics_text(const EvaluationResult& result);
/// What there is of each class, a line each; empty: nothing is.
std::string classes_text(const EvaluationResult& result);

}  // namespace onebatch::launch
