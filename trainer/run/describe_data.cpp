#include "trainer/run/describe_data.hpp"

#include "trainer/models/loss.hpp"

namespace onebatch {

DataReport describe_data(const Configuration& configuration, DataReportOptions options) {
  if (targets_of(configuration.loss) == Targets::classes) options.ignored = configuration.loss.ignore_index;
  return report_data(configuration.data, configuration.run.seed, options);
}

}  // namespace onebatch
