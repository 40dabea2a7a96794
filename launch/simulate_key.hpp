// The key of the devices that the CPU plays.
#pragma once

#include "launch/config_keys.hpp"

namespace onebatch::launch {

ConfigKey simulate_key();

}  // namespace onebatch::launch
