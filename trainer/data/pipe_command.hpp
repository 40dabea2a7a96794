// "pipe:COMMAND ARGUMENTS" in the place of a file's name: what a command writes to its standard output. No shell is
// between: words are split here. No LibTorch here.
#pragma once

#include "trainer/base/configuration.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace onebatch {

/// Whether a file's name begins with "pipe:".
bool is_pipe(const std::string& name);

/// How long ranks go on without a sign of life while they open `data`: a day where commands are among its files, since
/// all but one of a node's ranks do nothing until that one has read what they give; else 0.
std::chrono::seconds patience_with_commands(const DataConfiguration& data);

/// As a POSIX shell splits a command into words (Shell Command Language, 2.2), where nothing is expanded: blanks part
/// them; '...' is taken as it is; in "..." a backslash quotes $, `, ", \ and the end of a line; outside it quotes any
/// character. Throws UserError where a quotation does not end.
std::vector<std::string> split_words(const std::string& text);

/// Runs the command of a name that is_pipe(), and writes what it gives to `file`, `most_bytes` at most. Its standard
/// error is this process's. Throws UserError that names it: it cannot be started, fails (with its exit code), gives
/// nothing or too much; std::system_error where the file cannot be written. Returns how many bytes there were.
std::uint64_t read_pipe(const std::string& name, const std::filesystem::path& file, std::uint64_t most_bytes);

}  // namespace onebatch
