// A safetensors file that is written row by row, of more than memory holds: whole or not at all. No LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

/// A tensor [rows, ...] to be written; `dtype` as in a SafetensorsEntry.
struct RowTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t element_bytes = 0;

  [[nodiscard]] std::uint64_t row_bytes() const;
};

class RowFile {
 public:
  /// Takes the disk's room for all of it, beside `file`. Throws std::system_error naming it, also where the disk has
  /// not that much.
  RowFile(const std::filesystem::path& file, std::vector<RowTensor> tensors,
          const std::map<std::string, std::string>& metadata);
  /// Removes what was not committed.
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  /// Rows of a tensor, by its place among those given, from `first_row` on. Throws std::system_error naming the file.
  void write(std::size_t tensor, std::int64_t first_row, std::span<const std::byte> rows);
  /// Syncs and gives the file its name. Every row of every tensor has been written.
  void commit();

 private:
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void take_room(std::uint64_t bytes) const;
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path file_;
  std::filesystem::path partial_;
  std::vector<RowTensor> tensors_;
  std::vector<std::uint64_t> begins_;  // of each tensor in the file
  int descriptor_;
};

}  // namespace onebatch
