// Where answers are kept from one run to the next.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace onebatch {

/// $XDG_CACHE_HOME/onebatch/`what`, or ~/.cache/onebatch/`what`; empty where there is no home.
inline std::filesystem::path cache_folder(const char* what) {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "onebatch" / what;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "onebatch" / what : fs::path();
}

}  // namespace onebatch
