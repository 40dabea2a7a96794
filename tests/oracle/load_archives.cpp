// Loads TorchScript archives as the program does. A line for each file: what came of it, and a digest of all its
// tensors, which are read.
#include "trainer/base/error.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/models/torchscript.hpp"

#include <iostream>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::cout << argv[i] << '\t' << std::flush;
    try {
      const auto model = onebatch::load_torchscript({argv[i], false, false});
      std::vector<onebatch::NamedTensor> tensors = model->state_dict();
      const auto literals = model->literals();
      for (const at::Tensor& literal : *literals) tensors.push_back({"literal", literal});
      std::cout << "loaded\t" << onebatch::to_text(onebatch::digest_of(tensors)) << std::endl;
    } catch (const onebatch::UserError& error) {
      const std::string text = error.what();
      std::cout << "refused\t" << text.substr(0, text.find('\n')) << std::endl;
    }
  }
  return 0;
}
