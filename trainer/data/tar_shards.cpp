#include "trainer/data/tar_shards.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/data/shard_index.hpp"
#include "trainer/io/checksum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

// Each once, and which of them every column is.
std::vector<std::string> endings_of(const std::vector<std::string>& columns, std::vector<std::size_t>& of_column) {
  std::vector<std::string> endings;
  for (const std::string& column : columns) {
    const std::string ending = ending_of(column);
    const auto found = std::ranges::find(endings, ending);
    of_column.push_back(static_cast<std::size_t>(found - endings.begin()));
    if (found == endings.end()) endings.push_back(ending);
  }
  return endings;
}

}  // namespace

std::string ending_of(const std::string& column) {
  return column.substr(0, column.find(':'));
}

TarShards::TarShards(const DatasetConfiguration& data, const std::vector<std::string>& columns)
    : endings_(endings_of(columns, of_column_)) {
  const auto files = files_of(data, k_shard_extension);
  for (const auto& path : files) {
    const std::string name = path.string();
    DataFile file(is_pipe(name) ? spooled(name, data) : path, between_reads(files.size()));
    std::vector<TarPlace> places = places_in(file, name);
    const auto samples = static_cast<std::int64_t>(places.size() / endings_.size());
    if (samples > 0) shards_.push_back({name, std::move(file), std::move(places), size_});
    size_ += samples;
  }
  if (size_ == 0) throw UserError(files.front().string() + " holds no sample");
}

std::vector<TarPlace> TarShards::places_in(const DataFile& file, const std::string& name) const {
  if (!is_pipe(name)) return remembered_samples(file, endings_);
  try {
    return index_samples(file, endings_);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{} (what {} gives)", error.what(), name));
  }
}

std::filesystem::path TarShards::spooled(const std::string& name, const DatasetConfiguration& data) {
  std::uint64_t left = static_cast<std::uint64_t>(k_spool_mb(data)) << 20;
  for (const auto& spool : spools_) left -= std::min(left, spool->bytes());
  spools_.push_back(std::make_unique<Spool>(name, left));
  return spools_.back()->path();
}

TarShards::Found TarShards::find(std::size_t column, std::int64_t sample) const {
  if (sample < 0 || sample >= size_)
    throw std::out_of_range(fmt::format("sample {} of a data set of {}", sample, size_));
  const Shard& shard = *std::prev(std::ranges::upper_bound(shards_, sample, {}, &Shard::first_sample));
  const auto row = static_cast<std::size_t>(sample - shard.first_sample);
  return {shard, shard.places[row * endings_.size() + of_column_.at(column)]};
}

std::vector<std::byte> TarShards::bytes(std::size_t column, std::int64_t sample) const {
  const Found found = find(column, sample);
  std::vector<std::byte> bytes(static_cast<std::size_t>(found.place.bytes));
  found.shard.file.read(found.place.begin, bytes);
  return bytes;
}

std::string TarShards::name(std::size_t column, std::int64_t sample) const {
  const Found found = find(column, sample);
  return fmt::format("{}: the .{} of sample {}, at byte {},", found.shard.name, endings_[of_column_[column]], sample,
                     found.place.begin);
}

std::string TarShards::digest() const {
  ChecksumStream stream;
  for (const Shard& shard : shards_) {
    const std::string name = shard.file.path().filename().string();
    stream.update(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
    stream.update(std::as_bytes(std::span(shard.places)));
  }
  return to_text(stream.value());
}

std::vector<std::string> spooled_files(const DatasetConfiguration& data) {
  std::vector<std::string> lines;
  for (const auto& path : files_of(data, k_shard_extension)) {
    const std::string name = path.string();
    std::error_code error;
    if (!is_pipe(name)) continue;
    const auto bytes = std::filesystem::file_size(Spool::place_of(name), error);
    if (error) continue;
    lines.push_back(fmt::format("{} gave {:.1f} MB, which lie in {} until the run ends", name,
                                static_cast<double>(bytes) / 1e6, Spool::place_of(name).string()));
  }
  return lines;
}

std::int64_t samples_in_shards(const DatasetConfiguration& data, const std::vector<std::string>& columns) {
  std::vector<std::size_t> of_column;
  const std::vector<std::string> endings = endings_of(columns, of_column);
  std::int64_t samples = 0;
  const auto files = files_of(data, k_shard_extension);
  for (const auto& file : files) {
    if (is_pipe(file.string())) throw UserError(file.string() + " is not run to count its samples");
  }
  for (const auto& file : files)
    samples += static_cast<std::int64_t>(remembered_samples(DataFile(file), endings).size() / endings.size());
  return samples;
}

}  // namespace onebatch
