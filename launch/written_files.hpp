// Files that a command is asked to write.
#pragma once

#include "launch/command_line.hpp"
#include "trainer/base/configuration.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::launch {

/// Text may be written through a device or a pipe, which write_output() does; a configuration in another's place alone.
enum class Output { text, file, configuration };

/// Tries it: throws UserError, which begins with the option, where no file can be written there, or where there is one
/// that is no output (a configuration, a checkpoint's), before there is any work for it. Leaves nothing behind.
void check_can_be_written(const std::string& option, const std::filesystem::path& named, Output output = Output::file);

/// Throws UserError, which begins with the option, where it names one of these files, which are read `by`.
void check_is_not_read(const std::string& option, const std::filesystem::path& named,
                       const std::vector<std::filesystem::path>& read, const std::string& by = "here");

/// What a configuration names: its model's files, and its data's, also those of a folder or a pattern.
std::vector<std::filesystem::path> files_read(const Configuration& configuration);

/// The same of --save-gradient, as far as a configuration names files.
void check_gradient_file(const Arguments& arguments, const Configuration& configuration);

/// What a user has named: at once whole, where a link leads to in its place; a device or a pipe takes it and stays.
void write_output(const std::filesystem::path& file, std::string_view text);

/// The same of all files that the arguments of a command on several ranks name; rank 0 writes them.
void check_written_files(const Arguments& arguments);

}  // namespace onebatch::launch
