#include "trainer/io/row_file.hpp"

#include "trainer/io/durable_file.hpp"
#include "trainer/io/safetensors_head.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <numeric>
#include <system_error>

namespace onebatch {
namespace {

// The widest types first, so that each tensor begins at a multiple of its own.
std::vector<std::size_t> order_of(const std::vector<RowTensor>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return tensors[i].element_bytes; });
  return order;
}

}  // namespace

std::uint64_t RowTensor::row_bytes() const {
  return std::accumulate(shape.begin() + 1, shape.end(), element_bytes, [](std::uint64_t bytes, std::int64_t size) {
    return bytes * static_cast<std::uint64_t>(size);
  });
}

RowFile::RowFile(const std::filesystem::path& file, std::vector<RowTensor> tensors,
                 const std::map<std::string, std::string>& metadata)
    : file_(file),
      partial_(file.string() + ".partial"),
      tensors_(std::move(tensors)),
      begins_(tensors_.size()),
      descriptor_(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail("cannot create ");
  std::vector<SafetensorsEntry> entries;
  std::uint64_t end = 0;
  for (const std::size_t i : order_of(tensors_)) {
    const RowTensor& tensor = tensors_[i];
    begins_[i] = end;
    end += tensor.row_bytes() * static_cast<std::uint64_t>(tensor.shape.front());
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, begins_[i], end});
  }
  const std::string head = safetensors_head(entries, metadata);
  for (std::uint64_t& begin : begins_) begin += head.size();
  try {
    take_room(head.size() + end);
    write_at(0, std::as_bytes(std::span(head)));
  } catch (...) {  // no destructor runs
    ::close(descriptor_);
    ::unlink(partial_.c_str());
    throw;
  }
}

RowFile::~RowFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(partial_.c_str());
}

// So that a disk that is too full says so at once. Some file systems cannot take room; then writing will tell.
void RowFile::take_room(std::uint64_t bytes) const {
  while (::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) fail("cannot write ");
    return;
  }
}

void RowFile::write(std::size_t tensor, std::int64_t first_row, std::span<const std::byte> rows) {
  write_at(begins_.at(tensor) + static_cast<std::uint64_t>(first_row) * tensors_[tensor].row_bytes(), rows);
}

void RowFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write ");
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void RowFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot sync ");
  std::filesystem::rename(partial_, file_);
  ::close(descriptor_);  // was synced
  descriptor_ = -1;
  sync_folder(file_.has_parent_path() ? file_.parent_path() : ".");
}

void RowFile::fail(const char* what) const {
  throw std::system_error(errno, std::generic_category(), what + file_.string());
}

}  // namespace onebatch
