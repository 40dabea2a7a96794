// The data of a run: which samples train and which validate, and how an epoch draws them.
#pragma once

#include "trainer/data/dataset.hpp"
#include "trainer/data/sample_order.hpp"

namespace onebatch {

struct RunData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // may be none
  SampleDrawing drawing;
  /// A checksum of the numbers and weights that files give for samples; "none" where none does.
  std::string given_samples;
};

/// Validation comes from its own data, or from the training data where a fraction of it is asked for: then first that
/// is taken, and of what is left the fraction that trains. Throws UserError as open_dataset() does, and where nothing
/// is left for one of them.
RunData open_run_data(const DataConfiguration& configuration, std::uint64_t seed,
                      std::optional<std::int64_t> ignored = std::nullopt);

}  // namespace onebatch
