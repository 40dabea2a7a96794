// metrics.jsonl and validation.jsonl read back, whatever else their lines hold.
#pragma once

#include "launch/report/run_record.hpp"

namespace onebatch::launch::report {

/// Empty where there is no such file. Of ranks the steps after `ranks_after`. Throws UserError where it cannot be read.
Metrics read_metrics(const std::filesystem::path& file, std::int64_t ranks_after);
/// `metrics` says which samples had been used after a step.
Validations read_validations(const std::filesystem::path& file, const Metrics& metrics);

}  // namespace onebatch::launch::report
