// What a run's data are, as the run opens them. Free of LibTorch.
#pragma once

#include "trainer/data/data_report.hpp"

namespace onebatch {

/// report_data(); the label that counts for nothing is the loss's.
DataReport describe_data(const Configuration& configuration, DataReportOptions options);

}  // namespace onebatch
