// From a TOML text and --set arguments to a configuration, with all mistakes at once.
#pragma once

#include "trainer/base/configuration.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace onebatch::launch {

/// One mistake: where it stands and what to write instead.
struct ConfigMistake {
  std::string place;    // "x.toml:12:5" or "--set"
  std::string message;  // "optimizer.lrr: no such key; did you mean optimizer.lr?"
  unsigned line = 0;    // to list them in the file's order; 0 = not in the file
};

struct LoadedConfig {
  Configuration configuration;
  // Key -> "x.toml:12" or "command line"; keys that are not here have their defaults.
  std::map<std::string, std::string> origins;
  std::set<std::string> wrong = {};      // keys, and sections, that a mistake is of: nothing else is to be said of them
  std::vector<ConfigMistake> mistakes;   // empty: the configuration may be used
  std::vector<ConfigMistake> left_over;  // keys of earlier versions whose values say nothing any more
};

/// `text` is a TOML document, `name` how messages call it, `assignments` are "section.key=value" with TOML values (a
/// bare word is taken as text).
LoadedConfig load_config(const std::string& text, const std::string& name, const std::vector<std::string>& assignments);

/// What cannot be right whatever the file says, given how many ranks were started (0: not known).
std::vector<ConfigMistake> check_contradictions(const LoadedConfig& loaded, const std::string& name, int world_size);

/// The mistakes, one a line.
std::string mistakes_text(const std::vector<ConfigMistake>& mistakes);

/// The whole configuration as TOML, each key with where its value came from.
std::string resolved_config(const LoadedConfig& loaded);

}  // namespace onebatch::launch
