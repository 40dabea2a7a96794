#include "trainer/data/decoders.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/io/json_reader.hpp"
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

at::Tensor tensor_of(const nlohmann::json& value, const std::string& key) {
  const bool list = value.is_array();
  const std::vector<nlohmann::json> items = list ? value.get<std::vector<nlohmann::json>>() : std::vector{value};
  bool whole = true;
  for (const nlohmann::json& item : items) {
    if (!item.is_number() && !item.is_boolean())
      throw UserError(
          fmt::format("has \"{}\" = {}, which is no number and no list of numbers", key, value.dump().substr(0, 40)));
    whole = whole && !item.is_number_float();
  }
  const std::vector<std::int64_t> shape(list ? 1 : 0, static_cast<std::int64_t>(items.size()));
  const at::Tensor made = at::empty(shape, at::TensorOptions().dtype(whole ? at::kLong : at::kDouble));
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (whole)
      made.mutable_data_ptr<std::int64_t>()[i] =
          items[i].is_boolean() ? static_cast<std::int64_t>(items[i].get<bool>()) : items[i].get<std::int64_t>();
    else
      made.mutable_data_ptr<double>()[i] = items[i].get<double>();
  }
  return made;
}

Decoder json_decoder(const std::string& key) {
  return [key](std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    nlohmann::json document;
    try {
      document = JsonReader::parse(text, "it");
    } catch (const UserError& error) {
      throw UserError(fmt::format("holds no JSON: {}", error.what()));
    }
    if (!document.is_object() || !document.contains(key))
      throw UserError(fmt::format("has no \"{}\": {}", key, document.dump().substr(0, 60)));
    return tensor_of(document[key], key);
  };
}

}  // namespace

Decoder decoder_of(const std::string& ending) {
  if (const std::size_t colon = ending.find(':'); colon != std::string::npos) {
    const std::string of_file = ending.substr(0, colon);
    if (of_file.substr(of_file.rfind('.') + 1) == "json" && colon + 1 < ending.size())
      return json_decoder(ending.substr(colon + 1));
  }
  const std::string last = ending.substr(ending.rfind('.') + 1);
  if (last == "npy") return decode_npy;
  if (last == "cls") return decode_class;
  throw UserError(
      "files that end in ." + ending +
      " are not read: write \"npy\" (a NumPy array), \"cls\" (a whole number) or \"json:KEY\" (a number, or a "
      "list of numbers, in a JSON object); images stand alone, as data.inputs = [\"jpg\"]");
}

}  // namespace onebatch
