// What makes a run the run that it is: no checkpoint of another is gone on from.
#include "trainer/settings/identity.hpp"

#include "trainer/base/shape_text.hpp"
#include "trainer/run/loop.hpp"

#include <fmt/format.h>

namespace onebatch {

std::map<std::string, std::string> run_identity(const Configuration& configuration, const Dataset& data,
                                                const std::string& given_samples) {
  std::map<std::string, std::string> identity = identity_of_run(configuration);
  identity["data.size"] = fmt::to_string(data.size());
  identity["data.shape"] = shape_text(data.sample_shape());
  identity["what data.subset and data.sample_weights hold"] = given_samples;
  if (const std::string files = data.digest(); !files.empty()) identity[k_list_of_files] = files;
  return identity;
}

}  // namespace onebatch
