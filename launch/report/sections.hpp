// The parts of the page. Each is empty where the folders say nothing of it.
#pragma once

#include "launch/report/run_record.hpp"

#include <string>
#include <vector>

namespace onebatch::launch::report {

using Runs = std::vector<RunRecord>;

/// "A", "B", …, "Z", "27", …: how several runs are called in the page.
std::string letter_of(std::size_t run);
/// A heading over what belongs to one of several runs; empty where there is one alone.
std::string heading_of(const Runs& runs, std::size_t run);
/// What became of it, in a few words.
std::string state_text(const RunRecord& run);
/// "rank 3", "ranks 0-31 and 40".
std::string ranks_text(const std::vector<int>& ranks);
/// What a rank computes on; "" where the folder does not say.
std::string device_of(const RunRecord& run, std::size_t rank);

/// What ran on what, and what came of it: a column for each run.
std::string summary_section(const Runs& runs);
/// Keys whose values differ, or, of one run alone, those that somebody has set.
std::string settings_section(const Runs& runs);
std::string curves_section(const Runs& runs);
std::string plan_section(const Runs& runs);
std::string prediction_section(const Runs& runs);
std::string time_section(const Runs& runs);
std::string memory_section(const Runs& runs);
std::string events_section(const Runs& runs);
std::string repeat_section(const Runs& runs);

}  // namespace onebatch::launch::report
