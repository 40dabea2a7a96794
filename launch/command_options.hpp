// How commands get their options: what all of them have, and those that set things up.
#pragma once

#include "launch/command_line.hpp"

#include <CLI/CLI.hpp>

namespace onebatch::launch {

enum class Takes { a_configuration, options_alone };

/// A command with the options that all have.
CLI::App* add_command(CLI::App& app, Arguments& arguments, const char* name, const char* description, Takes takes);

/// `doctor`, `init`, `compile`, `completion` and `manual`.
void add_setup_commands(CLI::App& app, Arguments& arguments);

}  // namespace onebatch::launch
