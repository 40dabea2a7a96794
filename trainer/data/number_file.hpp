// Text files of numbers: one after another, separated by spaces or lines; what follows a # is no number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace onebatch {

/// Whole numbers from 0, each once and below `count`. Throws UserError that names file and line, and `key`.
std::vector<std::int64_t> read_sample_numbers(const std::filesystem::path& file, std::int64_t count, const char* key);

/// How many there are, whatever they are. Throws UserError where the file cannot be read.
std::int64_t count_numbers(const std::filesystem::path& file, const char* key);

/// `count` numbers. Throws UserError likewise.
std::vector<double> read_numbers(const std::filesystem::path& file, std::int64_t count, const char* key);

}  // namespace onebatch
