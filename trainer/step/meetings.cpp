#include "trainer/step/meetings.hpp"

#include "trainer/base/transfer.hpp"

#include <ATen/ops/tensor.h>

#include <stdexcept>
#include <utility>

namespace onebatch {
namespace {

Met met(std::vector<double> sent, std::vector<double> numbers, const at::Tensor& place, c10::Device device) {
  const at::Tensor host = at::tensor(numbers, at::kDouble);
  if (!place.defined()) return {std::move(sent), std::move(numbers), upload(host, device)};
  upload_into(place, host);
  return {std::move(sent), std::move(numbers), place};
}

}  // namespace

Met LiveMeetings::meet(const Packed& mine, const at::Tensor& place) {
  std::vector<double> sent = mine.read();
  std::vector<double> numbers = exchange_.gather(sent);
  for (std::size_t i = 0; !mine.counts.empty() && counts_.size() * mine.width() < numbers.size(); i += mine.width())
    counts_.push_back(static_cast<std::int64_t>(numbers[i]));
  return met(std::move(sent), std::move(numbers), place, device_);
}

void LiveMeetings::begin_last_backwards() {
  if (told_ != nullptr && told_->begin) told_->begin();
}

void LiveMeetings::is_final(std::size_t parameter) {
  if (tells()) told_->is_final(parameter);
}

Met NotedMeetings::meet(const Packed& mine, const at::Tensor& place) {
  Met all = live_.meet(mine, place);
  notes_.push_back({all.sent, all.numbers, {}});
  return all;
}

Met RepeatedMeetings::meet(const Packed& mine, const at::Tensor& place) {
  if (next_ < notes_.size()) return met(mine.read(), notes_[next_++].numbers, place, device_);
  if (then_ == nullptr) throw std::logic_error("an exchange that was not made before");
  return then_->meet(mine, place);
}

Met NoMeetings::meet(const Packed& /*mine*/, const at::Tensor& /*place*/) {
  throw std::logic_error("micro-batches that run one after the other meet nobody");
}

}  // namespace onebatch
