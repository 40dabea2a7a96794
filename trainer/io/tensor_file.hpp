// Named tensors in and out of safetensors files.
#pragma once

#include "trainer/io/named_tensors.hpp"
#include "trainer/io/safetensors.hpp"

#include <optional>

namespace onebatch {

/// The type of the format's word; none where it is not supported.
std::optional<at::ScalarType> type_of_dtype(const std::string& name);

/// The format's word for a type; null where it has none.
const char* dtype_of_type(at::ScalarType type);

/// Whether the format can hold it.
bool can_be_saved(const at::Tensor& tensor);

/// What safetensors files hold of tensors that lie in host memory without gaps: their bytes are borrowed. Throws
/// std::invalid_argument naming one that lies elsewhere, or is of a type that no file holds.
std::vector<SafetensorsView> views_of(const std::vector<NamedTensor>& tensors);

/// The tensors in host memory without gaps: themselves where they lie so.
std::vector<NamedTensor> on_host(const std::vector<NamedTensor>& tensors);

/// Writes live tensors, wherever they are, under their names. Returns the file's checksum. Throws std::system_error.
Checksum save_tensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

enum class Extra { refused, ignored };

/// Copies the file's values into the tensors, converting between floating-point types. All tensors must be in the file
/// with their shape; Extra::refused: and the file must hold no other. Throws UserError that names every difference.
void load_tensors(const std::filesystem::path& file, const std::vector<NamedTensor>& tensors, Extra extra);

}  // namespace onebatch
