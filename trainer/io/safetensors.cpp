#include "trainer/io/safetensors.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/json_reader.hpp"
#include "trainer/io/safetensors_head.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t k_length_bytes = 8;
constexpr std::uint64_t k_longest_header = 100'000'000;  // the format's own bound
constexpr std::int64_t k_largest = std::int64_t{1} << 62;

struct Dtype {
  const char* name;
  std::uint64_t bits;
};
// All of the format's (its Dtype), whether or not a run can use them: that is for who asks for the tensor to say.
constexpr std::array<Dtype, 22> k_dtypes = {
    {{"F64", 64},        {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},    {"I32", 32},
     {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},
     {"BOOL", 8},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}}};

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw UserError(file.string() + " is not a whole safetensors file: " + what);
}

std::uint64_t element_bits(const JsonReader& dtype) {
  const std::string name = dtype.text();
  for (const Dtype& known : k_dtypes) {
    if (name == known.name) return known.bits;
  }
  dtype.fail("is \"" + name + "\", a type that the format does not have");
}

std::uint64_t tensor_bytes(const JsonReader& tensor, std::vector<std::int64_t>& shape) {
  std::uint64_t bits = element_bits(tensor.field("dtype"));
  const JsonReader list = tensor.field("shape");
  const std::size_t count = list.array_size("sizes");
  for (std::size_t i = 0; i < count; ++i) {
    shape.push_back(list.item(i).integer(0, k_largest));
    const auto factor = static_cast<std::uint64_t>(shape.back());
    if (factor != 0 && bits > static_cast<std::uint64_t>(k_largest) / factor)
      list.fail("has more elements than any file");
    bits *= factor;
  }
  if (bits % 8 != 0) list.fail("has elements that end within a byte");
  return bits / 8;
}

SafetensorsEntry read_entry(const std::string& name, const JsonReader& tensor) {
  SafetensorsEntry entry;
  entry.name = name;
  const std::uint64_t bytes = tensor_bytes(tensor, entry.shape);
  entry.dtype = tensor.field("dtype").text();
  const JsonReader offsets = tensor.field("data_offsets");
  if (offsets.array_size("two offsets") != 2) offsets.fail("must be [begin, end]");
  entry.begin = static_cast<std::uint64_t>(offsets.item(0).integer(0, k_largest));
  entry.end = static_cast<std::uint64_t>(offsets.item(1).integer(0, k_largest));
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    offsets.fail(fmt::format("do not span the {} bytes of dtype and shape", bytes));
  return entry;
}

// Tensors must fill the data section without holes or overlaps.
void check_layout(const fs::path& file, SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t expected = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != expected)
      fail(file, fmt::format("tensor {} begins at byte {} of the data, not at {}", entry.name, entry.begin, expected));
    expected = entry.end;
  }
  if (expected != data_bytes) fail(file, fmt::format("its tensors need {} bytes, it has {}", expected, data_bytes));
}

// nlohmann keeps the last of two equal keys in silence; the format forbids them.
void check_names(const fs::path& file, const std::string& text) {
  std::set<std::string> names;
  std::string twice;
  const auto note = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  [[maybe_unused]] const auto parsed_again = nlohmann::json::parse(text, note, /*allow_exceptions=*/false);
  if (!twice.empty()) fail(file, "it names the tensor " + twice + " twice");
}

std::string read_header_text(const fs::path& file, std::uint64_t file_bytes) {
  std::ifstream in(file, std::ios::binary);
  std::array<unsigned char, k_length_bytes> bytes{};
  if (file_bytes < k_length_bytes || !in.read(reinterpret_cast<char*>(bytes.data()), k_length_bytes))
    fail(file, "it ends before its header's length");
  std::uint64_t length = 0;
  for (std::size_t i = k_length_bytes; i-- > 0;) length = (length << 8) | bytes[i];
  if (length > file_bytes - k_length_bytes || length > k_longest_header)
    fail(file, fmt::format("its header is said to have {} bytes", length));
  std::string text(static_cast<std::size_t>(length), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(length))) fail(file, "its header cannot be read");
  return text;
}

}  // namespace

std::string safetensors_head(std::span<const SafetensorsEntry> tensors,
                             const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const SafetensorsEntry& tensor : tensors)
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors begin at a multiple of 8 bytes
  std::string length(k_length_bytes, '\0');
  for (std::size_t i = 0; i < k_length_bytes; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

SafetensorsHeader read_safetensors_header(const fs::path& file) {
  std::error_code error;
  const std::uint64_t file_bytes = fs::file_size(file, error);
  if (error) throw UserError("cannot read " + file.string() + ": " + error.message());
  const std::string text = read_header_text(file, file_bytes);
  const nlohmann::json json = JsonReader::parse(text, file.string());
  if (!json.is_object()) fail(file, "its header is no JSON object");
  check_names(file, text);
  SafetensorsHeader header;
  header.data_begin = k_length_bytes + text.size();
  for (const auto& [name, value] : json.items()) {
    const JsonReader tensor(value, file.string() + ": tensor " + name);
    if (name != "__metadata__") {
      header.entries.push_back(read_entry(name, tensor));
      continue;
    }
    if (!value.is_object()) fail(file, "its __metadata__ is no object");
    for (const auto& [key, text_value] : value.items())
      header.metadata[key] = JsonReader(text_value, file.string() + ": __metadata__." + key).text();
  }
  check_layout(file, header, file_bytes - header.data_begin);
  return header;
}

std::vector<std::byte> read_safetensors_entry(const fs::path& file, const SafetensorsHeader& header,
                                              const SafetensorsEntry& entry) {
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(header.data_begin + entry.begin));
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())))
    fail(file, "tensor " + entry.name + " cannot be read");
  return bytes;
}

Checksum write_safetensors(const fs::path& file, std::span<const SafetensorsView> tensors,
                           const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::uint64_t offset = 0;
  for (const SafetensorsView& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape, offset, offset + tensor.bytes.size()});
    offset = entries.back().end;
  }
  const std::string head = safetensors_head(entries, metadata);
  DurableFile out(file);
  out.write(std::as_bytes(std::span(head)));
  for (const SafetensorsView& tensor : tensors) out.write(tensor.bytes);
  return out.commit();
}

}  // namespace onebatch
