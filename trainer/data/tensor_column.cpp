#include "trainer/data/tensor_column.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/data/file_list.hpp"
#include "trainer/io/contents.hpp"
#include "trainer/io/tensor_file.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace onebatch {
namespace {

// Below it a column is kept in memory: labels and small data sets, whose rows would each cost a call of the system.
constexpr std::size_t k_kept_bytes = std::size_t{8} << 20;

const SafetensorsEntry& entry_of(const TensorPiece& piece, const std::string& name, const std::string& key) {
  const auto& entries = piece.header.entries;
  const auto found = std::ranges::find(entries, name, &SafetensorsEntry::name);
  if (found != entries.end()) return *found;
  std::string names;
  for (const auto& entry : entries) names += (names.empty() ? "" : ", ") + entry.name;
  throw UserError(piece.file->path().string() + " holds no tensor \"" + name + "\": write one of " + names + " for " +
                  key);
}

at::ScalarType checked_type(const SafetensorsEntry& entry, const std::string& file, const std::string& key) {
  const auto type = type_of_dtype(entry.dtype);
  if (!type)
    throw UserError(file + ": tensor " + entry.name + " has the type " + entry.dtype + ", which is not supported");
  if (entry.shape.empty() || entry.shape[0] == 0)
    throw UserError(file + ": tensor " + entry.name + " holds no samples: its first dimension must count them");
  if (std::ranges::find(entry.shape, 0) != entry.shape.end())
    throw UserError(file + ": tensor " + entry.name + " " + shape_text(entry.shape) +
                    " holds no values: write another for " + key);
  return *type;
}

}  // namespace

std::vector<TensorPiece> open_pieces(const std::vector<std::filesystem::path>& files) {
  std::vector<TensorPiece> pieces;
  for (const auto& path : files) {
    auto file = std::make_shared<const DataFile>(path, between_reads(files.size()));
    pieces.push_back({std::move(file), read_safetensors_header(path)});
  }
  return pieces;
}

TensorColumn::TensorColumn(const std::vector<TensorPiece>& pieces, const std::string& name, const std::string& key)
    : name_(key + " \"" + name + "\"") {
  for (const TensorPiece& piece : pieces) add(piece, name, key);
  const std::size_t bytes = row_bytes_ * static_cast<std::size_t>(size());
  if (bytes > k_kept_bytes) return;
  std::vector<std::byte> all(bytes);
  read_run({0, size()}, all.data());
  kept_ = std::move(all);
}

void TensorColumn::add(const TensorPiece& piece, const std::string& name, const std::string& key) {
  const SafetensorsEntry& entry = entry_of(piece, name, key);
  const at::ScalarType type = checked_type(entry, piece.file->path().string(), key);
  if (shape_.empty()) {
    type_ = type;
    shape_ = entry.shape;
    row_bytes_ = static_cast<std::size_t>(entry.end - entry.begin) / static_cast<std::size_t>(shape_[0]);
    shape_[0] = 0;
  } else if (type != type_ ||
             !std::equal(entry.shape.begin() + 1, entry.shape.end(), shape_.begin() + 1, shape_.end())) {
    throw UserError(fmt::format("{}: {} is {} {}, but {} {} in {}: all files must hold the same tensors",
                                piece.file->path().string(), name_, entry.dtype, shape_text(entry.shape),
                                dtype_of_type(type_), shape_text(shape_), file_of(0)));
  }
  parts_.push_back({piece.file, piece.header.data_begin + entry.begin, shape_[0]});
  shape_[0] += entry.shape[0];
}

std::int64_t TensorColumn::rows_of(std::size_t piece) const {
  return (piece + 1 < parts_.size() ? parts_[piece + 1].first_row : size()) - parts_[piece].first_row;
}

std::size_t TensorColumn::part_of(std::int64_t row) const {
  const auto after = std::ranges::upper_bound(parts_, row, {}, &Part::first_row);
  return static_cast<std::size_t>(after - parts_.begin()) - 1;
}

void TensorColumn::check_row(std::int64_t row) const {
  if (row < 0 || row >= size()) throw std::out_of_range(fmt::format("sample {} of a data set of {}", row, size()));
}

at::Tensor TensorColumn::empty(std::vector<std::int64_t> shape) const {
  return at::empty(shape, at::TensorOptions().dtype(type_));
}

void TensorColumn::add_to(ChecksumStream& stream) const {
  std::vector<FileRegion> regions;
  for (std::size_t piece = 0; piece < parts_.size(); ++piece)
    regions.push_back(
        {parts_[piece].file.get(), parts_[piece].begin_bytes, static_cast<std::uint64_t>(rows_of(piece)) * row_bytes_});
  const std::string is = dtype_of_type(type_) + shape_text(shape_);
  stream.update(std::as_bytes(std::span(is)));
  add_contents(stream, regions);
}

// The first bytes of a row, or of several that lie in one file.
void TensorColumn::read_beginning(std::int64_t row, std::span<std::byte> to) const {
  if (!kept_.empty()) {
    std::memcpy(to.data(), kept_.data() + static_cast<std::size_t>(row) * row_bytes_, to.size());
    return;
  }
  const Part& part = parts_[part_of(row)];
  part.file->read(part.begin_bytes + static_cast<std::uint64_t>(row - part.first_row) * row_bytes_, to);
}

void TensorColumn::read_run(const RowRun& run, std::byte* to) const {
  const std::int64_t end = run.first + run.count;
  for (std::int64_t row = run.first; row < end;) {
    const std::size_t part = part_of(row);
    const std::int64_t count = std::min(end, parts_[part].first_row + rows_of(part)) - row;
    const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes_;
    read_beginning(row, {to, bytes});
    row += count;
    to += bytes;
  }
}

at::Tensor TensorColumn::consecutive(const RowRun& run) const {
  std::vector<std::int64_t> shape = shape_;
  shape[0] = run.count;
  const at::Tensor rows = empty(shape);
  read_run(run, static_cast<std::byte*>(rows.mutable_data_ptr()));
  return rows;
}

at::Tensor TensorColumn::rows(std::span<const std::int64_t> indices, std::int64_t longest, std::int64_t length) const {
  std::vector<std::int64_t> shape = shape_;
  shape[0] = static_cast<std::int64_t>(indices.size());
  std::size_t bytes = row_bytes_;
  if (shape.size() > 1 && shape[1] == longest && length < longest) {
    bytes = bytes / static_cast<std::size_t>(longest) * static_cast<std::size_t>(length);
    shape[1] = length;
  }
  const at::Tensor rows = empty(shape);
  auto* to = static_cast<std::byte*>(rows.mutable_data_ptr());
  for (const std::int64_t index : indices) {
    check_row(index);
    read_beginning(index, {to, bytes});
    to += bytes;
  }
  return rows;
}

at::Tensor TensorColumn::padded(std::span<const RowRun> runs, std::int64_t length, std::int64_t padding) const {
  std::vector<std::int64_t> shape = shape_;
  shape[0] = length;
  shape.insert(shape.begin(), static_cast<std::int64_t>(runs.size()));
  const at::Tensor all = empty(shape).fill_(padding);
  auto* to = static_cast<std::byte*>(all.mutable_data_ptr());
  for (const RowRun& run : runs) {
    read_run({run.first, std::min(run.count, length)}, to);
    to += static_cast<std::size_t>(length) * row_bytes_;
  }
  return all;
}

std::vector<std::int64_t> TensorColumn::integers() const {
  std::vector<std::int64_t> values;
  for_each_part(at::kLong, [&](std::int64_t /*first*/, const at::Tensor& part) {
    values.insert(values.end(), part.const_data_ptr<std::int64_t>(),
                  part.const_data_ptr<std::int64_t>() + part.numel());
  });
  return values;
}

}  // namespace onebatch
