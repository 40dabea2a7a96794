// Shards in WebDataset's layout, indexed once, so that samples are read by number. No LibTorch here.
#pragma once

#include "trainer/data/spool.hpp"
#include "trainer/data/tar_file.hpp"
#include "trainer/settings/option.hpp"

#include <memory>

namespace onebatch {

/// data.spool_mb: how much of the local disk what commands give may take.
inline const Option<DatasetConfiguration, std::int64_t> k_spool_mb{"spool_mb", 65536};

inline constexpr const char* k_shard_extension = ".tar";

class TarShards {
 public:
  /// The files that `data` names; what a command gives ("pipe:…") lies on the local disk as long as this lives, see
  /// Spool. `columns`: what of a sample is read, by the end of its member's name; "jpg;png":
  /// either; what stands after a colon says which part of the member, and is not of its name ("json:label"). Throws
  /// UserError.
  TarShards(const DatasetConfiguration& data, const std::vector<std::string>& columns);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// The member of a column. From any number of threads at once. Throws UserError where it cannot be read.
  [[nodiscard]] std::vector<std::byte> bytes(std::size_t column, std::int64_t sample) const;
  /// "a.tar: the .jpg of sample 7, at byte 1024,"
  [[nodiscard]] std::string name(std::size_t column, std::int64_t sample) const;
  /// Of the files' names and where members lie in them.
  [[nodiscard]] std::string digest() const;

 private:
  struct Shard {
    std::string name;  // how messages call it
    DataFile file;
    std::vector<TarPlace> places;  // [samples, endings]
    std::int64_t first_sample;
  };
  struct Found {
    const Shard& shard;
    const TarPlace& place;
  };
  [[nodiscard]] std::vector<TarPlace> places_in(const DataFile& file, const std::string& name) const;
  std::filesystem::path spooled(const std::string& name, const DatasetConfiguration& data);
  [[nodiscard]] Found find(std::size_t column, std::int64_t sample) const;

  std::vector<std::size_t> of_column_;  // its ending
  std::vector<std::string> endings_;    // each once
  std::vector<std::unique_ptr<Spool>> spools_;
  std::vector<Shard> shards_;
  std::int64_t size_ = 0;
};

/// What commands of `data` give lies where and takes how much, a line for each that is there now.
std::vector<std::string> spooled_files(const DatasetConfiguration& data);

/// Without opening them for good. Throws UserError for what a command gives, which only running it would tell.
std::int64_t samples_in_shards(const DatasetConfiguration& data, const std::vector<std::string>& columns);

/// What of `column` is of the members' names.
std::string ending_of(const std::string& column);

}  // namespace onebatch
