#include "trainer/data/read_ahead.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/out_of_memory.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <stdexcept>

namespace onebatch {
namespace {

std::string of_sample(std::int64_t sample, const char* words) {
  return fmt::format("sample {} of the training data: {}", sample, words);
}

}  // namespace

Batch read_of(const Dataset& data, std::span<const std::int64_t> samples, at::ScalarType type, std::int64_t length) {
  for (const std::int64_t sample : samples) fault_point("reader", sample);
  return length > 0 ? PaddedTo(data, length).read(samples, type) : data.read(samples, type);
}

Batch ReadAhead::read(std::span<const std::int64_t> indices, at::ScalarType type) const {
  const auto start = std::chrono::steady_clock::now();
  DataWait wait{device_.mark(), {}, 0.0};
  const Span span(timeline_, "wait for data", "data");
  const std::int64_t length = length_ == k_longest_in_it ? longest_of(data_, indices) : length_;
  Batch batch = taken_or_read({indices, ahead_.epoch, length}, type);
  wait.end = device_.mark();
  wait.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  waits_.push_back(std::move(wait));
  return batch;
}

Batch ReadAhead::taken_or_read(const ReadRequest& request, at::ScalarType type) const {
  try {
    std::optional<Batch> taken;
    if (ahead_.loader != nullptr) taken = ahead_.loader->take(request);
    if (!taken) return read_of(data_, request.samples, type, request.length);
    for (const at::Tensor& tensor : taken->tensors()) MemoryBudget::count(tensor.storage().data_ptr());
    return *std::move(taken);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) && !is_out_of_host_memory(error)) find_sample_that_fails(request, type);
    throw;
  }
}

// Each is read once more: the first that fails says why.
void ReadAhead::find_sample_that_fails(const ReadRequest& request, at::ScalarType type) const {
  for (const std::int64_t sample : request.samples) {
    try {
      read_of(data_, {&sample, 1}, type, request.length);
    } catch (const UserError& error) {
      throw UserError(of_sample(data_.origin_of(sample), error.what()));
    } catch (const std::exception& error) {
      throw std::runtime_error(of_sample(data_.origin_of(sample), error.what()));
    }
  }
}

double ReadAhead::waited_seconds() const {
  double seconds = 0.0;
  for (const DataWait& wait : waits_) seconds += wait.seconds;
  return seconds;
}

}  // namespace onebatch
