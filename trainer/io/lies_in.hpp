// Whether something that is there lies in a folder.
#pragma once

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace onebatch {

/// By whatever links lead to them; the folder itself does too. False where one of them is not there.
inline bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path inner = std::filesystem::canonical(path, error);
  if (error) return false;
  const std::filesystem::path outer = std::filesystem::canonical(folder, error);
  return !error && std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace onebatch
