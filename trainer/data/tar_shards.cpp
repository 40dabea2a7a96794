#include "trainer/data/tar_shards.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/io/checksum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

constexpr const char* k_extension = ".tar";

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
  const auto files = files_of(data, k_extension);
  for (const auto& path : files) {
    DataFile file(path, between_reads(files.size()));
    auto places = index_samples(file, endings_);
    const auto samples = static_cast<std::int64_t>(places.size() / endings_.size());
    if (samples > 0) shards_.push_back({std::move(file), std::move(places), size_});
    size_ += samples;
  }
  if (size_ == 0) throw UserError(files.front().string() + " holds no sample");
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
  return fmt::format("{}: the .{} of sample {}, at byte {},", found.shard.file.path().string(),
                     endings_[of_column_[column]], sample, found.place.begin);
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

std::int64_t samples_in_shards(const DatasetConfiguration& data, const std::vector<std::string>& columns) {
  std::vector<std::size_t> of_column;
  const std::vector<std::string> endings = endings_of(columns, of_column);
  std::int64_t samples = 0;
  for (const auto& file : files_of(data, k_extension))
    samples += static_cast<std::int64_t>(index_samples(DataFile(file), endings).size() / endings.size());
  return samples;
}

}  // namespace onebatch
