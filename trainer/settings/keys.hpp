// All keys of a configuration: those of every run, listed in the files *_keys.cpp, and those that kinds bring.
#pragma once

#include "trainer/settings/key.hpp"

#include <string>
#include <vector>

namespace onebatch {

/// In the order of the sections; of the kinds that are registered by now.
std::vector<Key> configuration_keys();

/// Whether the kind that the key belongs to is the one that is chosen.
bool is_in_use(const Key& key, const Configuration& configuration);

/// Gives the key of that path a value. Throws UserError that says what to write instead, or that there is no such key.
void set_key(Configuration& configuration, const std::string& path, const ConfigValue& value);

/// The rows of the tables in docs/configuration.md, one a line, a key each.
std::string key_rows();

}  // namespace onebatch
