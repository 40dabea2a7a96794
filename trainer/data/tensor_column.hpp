// A tensor that lies in one or several safetensors files, the rows of one after those of the other. Rows are read where
// they lie; no file is copied to memory.
#pragma once

#include "trainer/io/checksum.hpp"
#include "trainer/io/data_file.hpp"
#include "trainer/io/safetensors.hpp"

#include <ATen/core/Tensor.h>

#include <memory>

namespace onebatch {

/// One of the files.
struct TensorPiece {
  std::shared_ptr<const DataFile> file;
  SafetensorsHeader header;
};

/// Throws UserError that names the file and what is wrong with it.
std::vector<TensorPiece> open_pieces(const std::vector<std::filesystem::path>& files);

/// Some rows of a column, one after another.
struct RowRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

class TensorColumn {
 public:
  /// Of every piece the tensor `name`, that `key` of the configuration asks for. Throws UserError where one does not
  /// hold it, holds no rows, or holds it with another type or shape.
  TensorColumn(const std::vector<TensorPiece>& pieces, const std::string& name, const std::string& key);

  /// With the key that asks for it: data.target "y".
  [[nodiscard]] const std::string& name() const { return name_; }
  /// [rows of all pieces, ...].
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] std::int64_t size() const { return shape_[0]; }
  [[nodiscard]] std::int64_t rows_of(std::size_t piece) const;
  [[nodiscard]] at::ScalarType type() const { return type_; }
  [[nodiscard]] bool floating() const { return at::isFloatingType(type_); }
  [[nodiscard]] std::string file_of(std::size_t piece) const { return parts_[piece].file->path().string(); }

  /// Its type, shape and what it holds, as add_contents does it.
  void add_to(ChecksumStream& stream) const;
  /// The rows at `indices`, [indices, ...], as they lie in the file; of `longest` elements each the first `length`,
  /// where the second dimension is `longest`.
  [[nodiscard]] at::Tensor rows(std::span<const std::int64_t> indices, std::int64_t longest, std::int64_t length) const;
  /// Runs of rows, each padded with `padding` to `length`, or cut to it: [runs, length, ...].
  [[nodiscard]] at::Tensor padded(std::span<const RowRun> runs, std::int64_t length, std::int64_t padding) const;

  /// Visits all rows, some MB at a time: the first of them and their values [some, ...] as `type`.
  template <typename Visit>
  void for_each_part(at::ScalarType type, const Visit& visit) const {
    constexpr std::size_t k_part_bytes = std::size_t{1} << 20;
    const auto some = static_cast<std::int64_t>(std::max<std::size_t>(1, k_part_bytes / row_bytes_));
    for (std::int64_t first = 0; first < size(); first += some)
      visit(first, consecutive({first, std::min(some, size() - first)}).to(type));
  }
  /// All values of a column of integers.
  [[nodiscard]] std::vector<std::int64_t> integers() const;

 private:
  struct Part {
    std::shared_ptr<const DataFile> file;
    std::uint64_t begin_bytes;  // of its first row in the file
    std::int64_t first_row;
  };

  void add(const TensorPiece& piece, const std::string& name, const std::string& key);
  void check_alike(const SafetensorsEntry& entry, const std::string& file) const;
  void check_row(std::int64_t row) const;
  [[nodiscard]] std::size_t part_of(std::int64_t row) const;
  [[nodiscard]] at::Tensor empty(std::vector<std::int64_t> shape) const;
  [[nodiscard]] at::Tensor consecutive(const RowRun& run) const;
  void read_run(const RowRun& run, std::byte* to) const;
  void read_beginning(std::int64_t row, std::span<std::byte> to) const;

  std::string name_;
  at::ScalarType type_ = at::kFloat;
  std::vector<std::int64_t> shape_;
  std::size_t row_bytes_ = 0;
  std::vector<Part> parts_;
  std::vector<std::byte> kept_;  // all rows, where they are few
};

}  // namespace onebatch
