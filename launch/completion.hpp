// What makes a shell complete this program's commands, options and keys, made of the description that parses them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace onebatch::launch {

/// An option or an argument, as completions and the manual page show it.
struct DescribedOption {
  std::vector<std::string> names;  // "--set", "-h"; of an argument "CONFIG"
  std::string description;
  std::vector<std::string> values;  // that it may have; empty: any, or none
  std::string standard;             // what it is where it is not given; empty: nothing is said
  bool takes_value = false;
  bool is_argument = false;
  bool is_needed = false;
};

struct DescribedCommand {
  std::string name;
  std::string description;
  std::vector<DescribedOption> options;  // arguments among them
  bool runs_another = false;             // `launch`: another command stands behind it
};

std::vector<DescribedCommand> describe_commands(const CLI::App& app);

/// `shell`: "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace onebatch::launch
