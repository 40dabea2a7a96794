#include "trainer/device/deterministic.hpp"

namespace onebatch {

std::string operation_without_deterministic_form(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find(" does not have a deterministic implementation");
  if (end == std::string::npos) return {};
  // TorchScript's interpreter sets other lines before it.
  const std::size_t before = text.find_last_of(" \n", end == 0 ? 0 : end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin);
}

std::string refusal_of(const std::string& operation, const std::string& place) {
  return "run.deterministic: " + (place.empty() ? operation + " has" : place + ", has (as " + operation + ")") +
         " no form on this device that gives the same bits every time: replace it in the model, or write "
         "run.deterministic = false";
}

}  // namespace onebatch
