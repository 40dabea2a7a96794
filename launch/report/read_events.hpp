// What happened in a run, from events.jsonl and from what else of its folder says so.
#pragma once

#include "launch/report/run_record.hpp"

namespace onebatch::launch::report {

/// Fills events, spans and starts from events.jsonl. Throws UserError where it cannot be read.
void read_event_lines(const std::filesystem::path& file, RunRecord& run);
/// Adds incidents, skipped steps and, where nothing else tells of them, plans and checkpoints. Those lines and the
/// metrics are there already.
void read_events(const std::filesystem::path& folder, RunRecord& run);

}  // namespace onebatch::launch::report
