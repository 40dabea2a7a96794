// What a pickle of a TorchScript archive says of tensors. LibTorch's own reader takes that on trust. No LibTorch here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch {

/// A storage that tensors lie in: LibTorch reads the record of that key, and takes it to have so many bytes.
struct PickledStorage {
  std::string key;
  std::uint64_t bytes = 0;
};

/// Follows the pickle (protocol 2, the operations that LibTorch writes and reads) without making anything: what it takes from its stack is
/// there, and every tensor lies within its storage. Returns the storages. Throws std::runtime_error with what is wrong.
std::vector<PickledStorage> read_pickled_storages(std::string_view pickle);

}  // namespace onebatch
