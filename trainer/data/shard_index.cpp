#include "trainer/data/shard_index.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/cache_folder.hpp"
#include "trainer/io/checksum.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <type_traits>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

static_assert(std::is_trivially_copyable_v<TarPlace> && sizeof(TarPlace) == 16, "places are kept as they are");

struct Seen {
  std::string identity;  // all that an index depends on; empty: the file is not there any more
  double age_seconds = 0.0;
};

Seen look_at(const fs::path& path, const std::vector<std::string>& endings) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  std::error_code ignored;
  std::string text =
      fmt::format("onebatch shard index 2\n{}\n{} {} {} {}.{:09} {}.{:09}\n", fs::absolute(path, ignored).string(),
                  found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec,
                  found.st_ctim.tv_sec, found.st_ctim.tv_nsec);
  for (const std::string& ending : endings) text += ending + "\n";
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return {text, static_cast<double>(now.tv_sec - found.st_ctim.tv_sec) +
                    1e-9 * static_cast<double>(now.tv_nsec - found.st_ctim.tv_nsec)};
}

std::string checksum_of_text(std::string_view text) {
  return to_text(checksum_of_bytes(std::as_bytes(std::span(text))));
}

// One for each path and endings: a file that has changed takes the place of what it was.
fs::path entry_of(const fs::path& path, const std::vector<std::string>& endings) {
  const fs::path folder = shard_index_folder();
  if (folder.empty()) return folder;
  std::error_code ignored;
  std::string key = fs::absolute(path, ignored).string();
  for (const std::string& ending : endings) key += "\n" + ending;
  return folder / checksum_of_text(key);
}

// A checksum of what follows, a line; the identity and an empty line; the places.
std::string entry_text(const std::string& identity, const std::vector<TarPlace>& places) {
  std::string text = identity + "\n";
  const auto bytes = std::as_bytes(std::span(places));
  text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return checksum_of_text(text) + "\n" + text;
}

bool lie_in(std::uint64_t bytes, const std::vector<TarPlace>& places) {
  for (const TarPlace& place : places) {
    if (place.begin > bytes || place.bytes > bytes - place.begin) return false;
  }
  return true;
}

std::optional<std::vector<TarPlace>> load(const fs::path& entry, const std::string& identity, std::uint64_t bytes) {
  std::error_code error;
  if (entry.empty() || !fs::is_regular_file(entry, error)) return std::nullopt;
  try {
    const std::string text = read_text(entry);
    const std::string head = identity + "\n";
    constexpr std::size_t k_sum = 33;
    if (text.size() < k_sum + head.size() || text.compare(k_sum, head.size(), head) != 0) return std::nullopt;
    const std::string_view summed = std::string_view(text).substr(k_sum);
    const std::string_view rest = summed.substr(head.size());
    if (text.compare(0, k_sum, checksum_of_text(summed) + "\n") != 0 || rest.size() % sizeof(TarPlace) != 0)
      return std::nullopt;
    std::vector<TarPlace> places(rest.size() / sizeof(TarPlace));
    if (!places.empty()) std::memcpy(places.data(), rest.data(), rest.size());
    if (!lie_in(bytes, places)) return std::nullopt;
    return places;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Under a name of this process first: ranks keep the same entry at the same time. Without room nothing is kept.
void store(const fs::path& entry, const std::string& text) {
  if (entry.empty()) return;
  std::error_code error;
  fs::create_directories(entry.parent_path(), error);
  if (error) return;
  const fs::path own = entry.string() + fmt::format(".{}.partial", ::getpid());
  try {
    write_text_atomically(own, text);
    fs::rename(own, entry);
  } catch (const std::exception&) {
    fs::remove(own, error);
  }
}

}  // namespace

fs::path shard_index_folder() {
  return cache_folder("shards");
}

std::vector<TarPlace> remembered_samples(const DataFile& file, const std::vector<std::string>& endings) {
  // Files' clocks tick in milliseconds, on some disks in seconds: a file that was written just now may change without
  // another time of change.
  constexpr double k_least_age_seconds = 1.0;
  const Seen seen = look_at(file.path(), endings);
  const fs::path entry = entry_of(file.path(), endings);
  if (auto places = load(entry, seen.identity, file.bytes())) return *std::move(places);
  std::vector<TarPlace> places = index_samples(file, endings);
  const bool unchanged = seen.identity == look_at(file.path(), endings).identity;
  if (unchanged && seen.age_seconds > k_least_age_seconds) store(entry, entry_text(seen.identity, places));
  return places;
}

}  // namespace onebatch
