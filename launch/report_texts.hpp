// Results as a person reads them.
#pragma once

#include "trainer/base/profile.hpp"
#include "trainer/base/results.hpp"

namespace onebatch::launch {

/// The profile as a table, a line per rank.
std::string profile_table(const ClusterProfile& profile);
std::string verify_text(const VerifyReport& report);

}  // namespace onebatch::launch
