#include "trainer/probe/probe_cache.hpp"

#include "trainer/base/error.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/cache_folder.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/json_reader.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fstream>
#include <sstream>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

std::string digest(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

ProbeCache::ProbeCache(const fs::path& folder, std::string identity) : identity_(std::move(identity)) {
  if (!folder.empty()) file_ = folder / (digest(identity_) + ".json");
}

std::optional<RankProfile> ProbeCache::load() const {
  std::ifstream in(file_, std::ios::binary);
  std::ostringstream text;
  if (file_.empty() || !in || !(text << in.rdbuf())) return std::nullopt;
  try {
    const nlohmann::json json = JsonReader::parse(text.str(), file_.string());
    if (!json.is_object() || !json.contains("identity") || json["identity"] != identity_ || !json.contains("profile"))
      return std::nullopt;
    const ClusterProfile profile = parse_profile(json["profile"].dump(), file_.string());
    if (profile.ranks.size() != 1 || profile.ranks[0].largest_micro_batch < 1) return std::nullopt;
    return profile.ranks[0];
  } catch (const UserError&) {
    return std::nullopt;  // torn, or written by another version
  }
}

std::string ProbeCache::store(const RankProfile& rank) const {
  if (file_.empty()) return "there is no home folder: set XDG_CACHE_HOME";
  try {
    fs::create_directories(file_.parent_path());
    ClusterProfile profile;
    profile.ranks.push_back(rank);
    const nlohmann::ordered_json document = {{"identity", identity_},
                                             {"profile", nlohmann::ordered_json::parse(to_json(profile))}};
    write_text_atomically(file_, document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void ProbeCache::forget() const {
  std::error_code ignored;
  if (!file_.empty()) fs::remove(file_, ignored);
}

fs::path ProbeCache::default_folder() {
  return cache_folder("probe");
}

}  // namespace onebatch
