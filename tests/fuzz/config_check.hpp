// What must hold for every configuration, wherever its text came from.
#pragma once

#include "launch/config_loader.hpp"

namespace onebatch::fuzz {

/// Mistakes say where and what; a configuration without any, written and loaded again, is the same one.
void check_loaded(launch::LoadedConfig loaded);

}  // namespace onebatch::fuzz
