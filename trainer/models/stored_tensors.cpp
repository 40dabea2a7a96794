#include "trainer/models/stored_tensors.hpp"

#include "trainer/base/error.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/exported_state.hpp"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <fstream>
#include <memory>

namespace onebatch {
namespace {

constexpr const char* k_how_to_save =
    "save them in Python by safetensors.torch.save_file(model.state_dict(), \"weights.safetensors\")";

bool is_zip(const std::string& file) {
  std::string begin(4, '\0');
  std::ifstream(file, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == "PK\x03\x04";
}

at::Tensor read_entry(const std::string& file, const SafetensorsHeader& header, const SafetensorsEntry& entry) {
  const auto type = type_of_dtype(entry.dtype);
  if (!type)
    throw UserError(file + ": tensor " + entry.name + " has the type " + entry.dtype + ", which is not supported");
  const at::Tensor read = at::empty(entry.shape, at::TensorOptions().dtype(*type));
  copy_from_bytes(read, read_safetensors_entry(file, header, entry));
  return read;
}

std::vector<StoredTensor> of_safetensors(const std::string& file) {
  const auto header = std::make_shared<const SafetensorsHeader>(read_safetensors_header(file));
  std::vector<StoredTensor> tensors;
  for (const SafetensorsEntry& entry : header->entries)
    tensors.push_back({entry.name, entry.shape, type_of_dtype(entry.dtype),
                       [file, header, &entry] { return read_entry(file, *header, entry); }});
  return tensors;
}

std::vector<StoredTensor> of_program(const std::string& file) {
  std::vector<StoredTensor> tensors;
  ExportedArchive archive = read_exported_archive(file);
  const ExportedState state(archive, file);
  for (const auto& [name, tensor] : state.state_dict())
    tensors.push_back({name, tensor.sizes().vec(), tensor.scalar_type(), [tensor] { return tensor.detach(); }});
  return tensors;
}

}  // namespace

std::vector<StoredTensor> tensors_in(const std::string& file) {
  if (!std::filesystem::is_regular_file(file))
    throw UserError("model.weights = \"" + file + "\" is no file: write the path of weights, which you " +
                    k_how_to_save + ", or of a program of torch.export.save");
  if (!is_zip(file)) {
    if (!file.ends_with(".pt2")) return of_safetensors(file);
    throw UserError("model.weights = \"" + file + "\" is no program of torch.export.save, which is a zip file: " +
                    "save it anew, or " + k_how_to_save);
  }
  try {
    return of_program(file);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    const std::string said = error.what();
    const bool is_script = said.find("TorchScript") != std::string::npos;
    throw UserError("model.weights = \"" + file + "\" holds no weights that can be read (" +
                    (is_script ? "it is TorchScript, or a pickle of torch.save" : said.substr(0, said.find('\n'))) +
                    "): " + k_how_to_save);
  }
}

}  // namespace onebatch
