// Shards in WebDataset's layout, indexed once, so that samples are read by number. No LibTorch here.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/data/tar_file.hpp"

namespace onebatch {

class TarShards {
 public:
  /// The files that `data` names. `columns`: what of a sample is read, by the end of its member's name; "jpg;png":
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
    DataFile file;
    std::vector<TarPlace> places;  // [samples, endings]
    std::int64_t first_sample;
  };
  struct Found {
    const Shard& shard;
    const TarPlace& place;
  };
  [[nodiscard]] Found find(std::size_t column, std::int64_t sample) const;

  std::vector<std::size_t> of_column_;  // its ending
  std::vector<std::string> endings_;    // each once
  std::vector<Shard> shards_;
  std::int64_t size_ = 0;
};

/// Without opening them for good.
std::int64_t samples_in_shards(const DatasetConfiguration& data, const std::vector<std::string>& columns);

/// What of `column` is of the members' names.
std::string ending_of(const std::string& column);

}  // namespace onebatch
