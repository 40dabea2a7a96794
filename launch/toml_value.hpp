// TOML's values as the configuration's.
#pragma once

#include "trainer/settings/value.hpp"

#include <toml++/toml.h>

namespace onebatch::launch {

ConfigValue value_of(const toml::node& node);

}  // namespace onebatch::launch
