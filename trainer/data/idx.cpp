#include "trainer/data/idx.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <limits>
#include <memory>
#include <string>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

// Deflate cannot expand by more (zlib's technical notes: 1032 to 1).
constexpr std::uint64_t k_most_expansion = 1032;

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw UserError(file.string() + ": " + what);
}

struct GzClose {
  void operator()(gzFile handle) const { gzclose(handle); }
};

// zlib reads plain files as they are.
class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file), handle_(gzopen(file.c_str(), "rb")) {
    if (handle_ == nullptr) fail(file, "cannot be opened");
  }

  void read(std::uint8_t* to, std::uint64_t count, const char* what) {
    while (count > 0) {
      const auto wanted = static_cast<unsigned>(std::min<std::uint64_t>(count, std::uint64_t{1} << 24));
      const int got = gzread(handle_.get(), to, wanted);
      if (got <= 0)
        fail(file_, std::string("ends in the middle of its ") + what + " or is damaged: it is not a whole IDX file");
      to += got;
      count -= static_cast<std::uint64_t>(got);
    }
  }

  void expect_end() {
    std::uint8_t extra = 0;
    const int got = gzread(handle_.get(), &extra, 1);
    if (got > 0) fail(file_, "is longer than its header says");
    if (got < 0) fail(file_, "is damaged at its end");
  }

 private:
  const fs::path& file_;
  std::unique_ptr<gzFile_s, GzClose> handle_;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) | (std::uint32_t{bytes[2]} << 8) | bytes[3];
}

std::uint64_t checked_product(const fs::path& file, const std::vector<std::int64_t>& shape, std::uint64_t most) {
  std::uint64_t product = 1;
  for (const std::int64_t size : shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && product > most / factor) fail(file, "says that it holds more than a file of this length can");
    product *= factor;
  }
  return product;
}

}  // namespace

IdxArray read_idx(const fs::path& file, std::int64_t num_dimensions) {
  std::error_code error;
  const std::uint64_t file_bytes = fs::is_regular_file(file, error) ? fs::file_size(file, error) : 0;
  if (error || file_bytes == 0) fail(file, "is not a file that can be read, or is empty");
  Reader reader(file);
  std::array<std::uint8_t, 4> magic{};
  reader.read(magic.data(), magic.size(), "magic number");
  if (magic[0] != 0 || magic[1] != 0)
    fail(file, "is not an IDX file: its magic number does not begin with two zero bytes");
  if (magic[2] != 0x08)
    fail(file, fmt::format("holds elements of IDX type {}; only unsigned bytes (8) are read", magic[2]));
  if (magic[3] != num_dimensions)
    fail(file, fmt::format("has {} dimension(s), {} were expected", magic[3], num_dimensions));
  IdxArray array;
  for (std::int64_t i = 0; i < num_dimensions; ++i) {
    std::array<std::uint8_t, 4> size{};
    reader.read(size.data(), size.size(), "sizes");
    array.shape.push_back(big_endian(size.data()));
  }
  array.values.resize(checked_product(file, array.shape, file_bytes * k_most_expansion));
  reader.read(array.values.data(), array.values.size(), "data");
  reader.expect_end();
  return array;
}

std::optional<fs::path> idx_in(const fs::path& folder, const std::string& name) {
  for (const fs::path& file : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(file)) return file;
  }
  return std::nullopt;
}

fs::path find_idx(const fs::path& folder, const std::string& name, const std::string& key) {
  if (const auto file = idx_in(folder, name)) return *file;
  throw UserError("no " + name + " and no " + name + ".gz in " + fs::absolute(folder).string() + ": " + key +
                  " must be the folder that holds them");
}

}  // namespace onebatch
