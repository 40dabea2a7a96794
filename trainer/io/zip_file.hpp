// A zip file, checked from end to end before anything else reads it. No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

struct ZipRecord {
  std::string name;
  std::uint64_t bytes = 0;  // unpacked
  std::uint64_t packed_bytes = 0;
  std::uint32_t checksum = 0;  // CRC-32
  std::string content;         // of those that were asked for
};

/// What is done with a record's bytes: read and returned, read, or left to the caller, who compares their CRC-32. Those
/// of a packed record are read in any case.
enum class ZipContent { kept, read, left };

/// Every record, in the directory's order; `choose` decides about each by what the directory says of it. The directory
/// and each record's own header agree, names are relative, without "..", and unique, and the bytes of every record that
/// is read have the size and the CRC-32 that the directory says. Throws std::runtime_error with what is wrong.
std::vector<ZipRecord> read_zip(const std::string& file, const std::function<ZipContent(const ZipRecord&)>& choose);

/// CRC-32 as zip files have it.
std::uint32_t checksum_of(std::span<const std::byte> bytes);

}  // namespace onebatch
