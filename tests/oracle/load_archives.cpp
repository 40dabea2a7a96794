// Loads TorchScript archives, and exported programs (.pt2), as the program does. A line for each file: what came of it,
// and a digest of all its tensors, which are read; in the end how large the process has been at most, in KiB.
#include "trainer/base/error.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/exported.hpp"
#include "trainer/models/torchscript.hpp"

#include <fstream>
#include <iostream>

namespace {

std::unique_ptr<onebatch::Model> load(const std::string& file) {
  if (file.ends_with(".pt2")) return onebatch::load_exported({.file = file});
  return onebatch::load_torchscript({file, false, false});
}

std::string peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPeak:")) return std::to_string(std::stoll(line.substr(7)));
  }
  return "0";
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::cout << argv[i] << '\t' << std::flush;
    try {
      const auto model = load(argv[i]);
      std::vector<onebatch::NamedTensor> tensors = model->state_dict();
      const auto literals = model->literals();
      for (const at::Tensor& literal : *literals) tensors.push_back({"literal", literal});
      std::cout << "loaded\t" << onebatch::to_text(onebatch::digest_of(tensors)) << std::endl;
    } catch (const onebatch::UserError& error) {
      const std::string text = error.what();
      std::cout << "refused\t" << text.substr(0, text.find('\n')) << std::endl;
    }
  }
  std::cout << "peak\tKiB\t" << peak() << std::endl;
  return 0;
}
