// Every key of a configuration file: its type, its range, where it goes. Loading, the resolved file and the documents all come from this
// one table.
#pragma once

#include "trainer/base/configuration.hpp"

#include <toml++/toml.h>

#include <functional>
#include <string>
#include <vector>

namespace onebatch::launch {

/// What is wrong with a value, in words that say what to write instead; empty: nothing.
using Complaint = std::string;

struct ConfigKey {
  std::string path;    // "batch.global_batch_size"
  std::string values;  // "a whole number from 1", "\"auto\", n or [n0, n1, …]"
  std::function<Complaint(const toml::node&, Configuration&)> read;
  std::function<std::string(const Configuration&)> show;  // as TOML; empty: not set
};

const std::vector<ConfigKey>& config_keys();

/// Keys of the design that this version does not have, so that they are not taken for typing errors.
const std::vector<std::string>& future_keys();

}  // namespace onebatch::launch
