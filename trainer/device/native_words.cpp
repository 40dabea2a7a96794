#include "trainer/device/native_words.hpp"

#include <iostream>
#include <memory>
#include <streambuf>
#include <utility>

namespace onebatch {
namespace {

thread_local std::string* held = nullptr;  // where its thread's words go; null: on
thread_local NativeWords* current = nullptr;

class Diverting : public std::streambuf {
 public:
  explicit Diverting(std::streambuf* onward) : onward_(onward) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize length) override {
    if (held == nullptr) return onward_->sputn(text, length);
    held->append(text, static_cast<std::size_t>(length));
    return length;
  }
  int_type overflow(int_type letter) override {
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    const char text = traits_type::to_char_type(letter);
    return xsputn(&text, 1) == 1 ? letter : traits_type::eof();
  }
  int sync() override { return held == nullptr ? onward_->pubsync() : 0; }

 private:
  std::streambuf* onward_;
};

// Once, and for as long as anything may be written.
void install() {
  static const bool done = [] {
    auto diverting = std::make_unique<Diverting>(std::cerr.rdbuf());
    std::cerr.rdbuf(diverting.release());
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

NativeWords::NativeWords() {
  install();
  before_ = std::exchange(current, this);
  held = &words_;
}

NativeWords::~NativeWords() {
  current = before_;
  held = before_ != nullptr ? &before_->words_ : nullptr;
  if (!is_dropped_) std::cerr << words_;
}

void NativeWords::drop_current() {
  if (current != nullptr) current->drop();
}

}  // namespace onebatch
