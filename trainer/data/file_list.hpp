// The files of a data set: one, several by name, all of a folder, or those that a pattern names. No LibTorch here.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/io/data_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace onebatch {

/// What data.path and data.files name, in the order in which their samples are counted: a list as it is written, the
/// files of a folder (those that end in `extension`, but for hidden ones) and of a pattern by their names' bytes.
/// "pipe:…" is a command, and stays as it is: shards alone may be one. Throws UserError where there is none, or one is
/// named twice.
std::vector<std::filesystem::path> files_of(const DatasetConfiguration& data, const std::string& extension);

/// Of each of so many.
Between between_reads(std::size_t files);

}  // namespace onebatch
