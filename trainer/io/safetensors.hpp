// The safetensors format (github.com/huggingface/safetensors): a length, a JSON header, raw little-endian tensors. No
// LibTorch here.
#pragma once

#include "trainer/io/checksum.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

/// One tensor's place. `dtype` is the format's word: "F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", …, of
/// which a run uses those of type_of_dtype().
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // offsets into the data section, bytes
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their offsets
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  // offset of the data section in the file
};

/// A tensor to be written: bytes are borrowed.
struct SafetensorsView {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Reads and checks the header against the file's size: overlaps, holes, sizes that disagree with shape and dtype, a
/// header larger than the file. Throws UserError that names the file and the tensor. Never allocates more than the
/// file's own size.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& file);
/// The bytes of one entry.
std::vector<std::byte> read_safetensors_entry(const std::filesystem::path& file, const SafetensorsHeader& header,
                                              const SafetensorsEntry& entry);
/// Writes and syncs. Returns the file's checksum. Throws std::system_error naming the file (a full disk included) and
/// leaves no file behind then.
Checksum write_safetensors(const std::filesystem::path& file, std::span<const SafetensorsView> tensors,
                           const std::map<std::string, std::string>& metadata);

}  // namespace onebatch
