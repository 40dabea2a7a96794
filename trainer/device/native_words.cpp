#include "trainer/device/native_words.hpp"

#include <iostream>
#include <utility>

namespace onebatch {

NativeWords::NativeWords() : before_(std::cerr.rdbuf(words_.rdbuf())) {}

NativeWords::~NativeWords() {
  std::cerr.rdbuf(before_);
  std::cerr << std::move(words_).str();
}

}  // namespace onebatch
