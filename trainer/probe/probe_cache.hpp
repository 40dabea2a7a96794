// Answers of earlier probes, kept for the next run of the same: a file for each rank of each thing that was probed.
#pragma once

#include "trainer/base/profile.hpp"

#include <filesystem>

namespace onebatch {

class ProbeCache {
 public:
  /// `identity` names all that the answer depends on; the file's name is its digest, and it stands in the file too.
  ProbeCache(const std::filesystem::path& folder, std::string identity);

  /// None where there is no answer, or its file is not whole or of something else.
  [[nodiscard]] std::optional<RankProfile> load() const;
  /// Why it could not be kept; empty where it was.
  [[nodiscard]] std::string store(const RankProfile& rank) const;

  /// Another run measures anew.
  void forget() const;

  /// $XDG_CACHE_HOME/onebatch/probe, or ~/.cache/onebatch/probe; empty where there is no home.
  static std::filesystem::path default_folder();

 private:
  std::filesystem::path file_;  // empty: nothing is kept
  std::string identity_;
};

}  // namespace onebatch
