// What must hold for every configuration, wherever its text came from.
#pragma once

#include "launch/config_loader.hpp"

namespace onebatch::fuzz {

/// Makes kinds known: the built-in ones, or, where LibTorch is not at hand, others with the same keys.
void register_kinds();

/// Mistakes say where and what; a configuration without any, written and loaded again, is the same one.
void check_loaded(launch::LoadedConfig loaded);

}  // namespace onebatch::fuzz
