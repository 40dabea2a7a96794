// What a pickle of a TorchScript archive says of tensors, and what it holds. LibTorch's own reader takes that on trust.
// No LibTorch here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch {

/// A storage that tensors lie in: LibTorch reads the record of that key, and takes it to have so many bytes.
struct PickledStorage {
  std::string key;
  std::uint64_t bytes = 0;
};

enum class PickledKind { other, none, integer, text, global, tuple, list, integers, dict, storage };

/// A value, as far as anything is asked of it.
struct PickledValue {
  PickledKind kind = PickledKind::other;
  std::int64_t number = 0;  // an integer; the elements of a storage
  std::string text = {};
  std::shared_ptr<std::vector<PickledValue>> items = {};  // of a tuple, a list or integers
  std::int64_t depth = 0;                                 // of what it holds
  bool remembered = false;                                // the pickle may come back to it
};

struct PickledContent {
  PickledValue value;
  std::vector<PickledStorage> storages;
};

/// Follows the pickle (protocol 2, the operations that LibTorch writes and reads) without making anything: what it
/// takes from its stack is there, nothing nests so deep that its end would take more stack than there is, and every
/// tensor lies within its storage. Throws std::runtime_error with what is wrong.
PickledContent read_pickle(std::string_view pickle);

}  // namespace onebatch
