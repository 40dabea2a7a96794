#include "trainer/data/decoders.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/io/tensor_file.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <charconv>
#include <cstring>

namespace onebatch {
namespace {

at::Tensor decode_npy(std::span<const std::byte> bytes) {
  const NpyHeader header = read_npy_header(bytes);
  const at::Tensor made = at::empty(header.shape, at::TensorOptions().dtype(type_of_dtype(header.dtype).value()));
  if (made.numel() > 0) std::memcpy(made.mutable_data_ptr(), bytes.data() + header.begin, bytes.size() - header.begin);
  return made;
}

at::Tensor decode_class(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw UserError(fmt::format("holds \"{}\", which is no whole number", text.substr(0, 20)));
  return at::full({}, value, at::kLong);
}

}  // namespace

Decoder decoder_of(const std::string& ending) {
  const std::string last = ending.substr(ending.rfind('.') + 1);
  if (last == "npy") return decode_npy;
  if (last == "cls") return decode_class;
  throw UserError("files that end in ." + ending +
                  " are not read: write .npy (a NumPy array) or .cls (a whole number)");
}

}  // namespace onebatch
