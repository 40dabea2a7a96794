// The manual page, onebatch(1), made of the description that parses the arguments.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace onebatch::launch {

/// In the macros of man(7), as `man -l` takes it.
std::string manual_page(const CLI::App& app);

}  // namespace onebatch::launch
