// What a probe's answer depends on beside the words of the configuration.
#pragma once

#include "trainer/replica/replica.hpp"

#include <string>

namespace onebatch {

/// Of a rank's device, program and replica.
std::string identity_of_rank(const Replica& replica, const Dataset& data);

/// Of what lies in a file: under the same name it may be another model. Empty where there is no such file.
std::string identity_of_file(const std::string& path);

}  // namespace onebatch
