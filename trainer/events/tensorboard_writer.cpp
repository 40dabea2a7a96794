#include "trainer/events/tensorboard_writer.hpp"

#include "trainer/io/crc32c.hpp"
#include "trainer/io/folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <typename Number>
std::string bytes_of(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Protocol buffers, as https://protobuf.dev/programming-guides/encoding has them. Fields of tensorflow/core/util
// event.proto and tensorflow/core/framework/summary.proto.
enum class WireType { varint = 0, fixed64 = 1, delimited = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

std::string key(unsigned field, WireType type) {
  return varint(field << 3 | static_cast<unsigned>(type));
}

std::string delimited(unsigned field, const std::string& value) {
  return key(field, WireType::delimited) + varint(value.size()) + value;
}

// Event: wall_time = 1, step = 2.
std::string event_head(double time, std::int64_t step) {
  return key(1, WireType::fixed64) + bytes_of(time) + key(2, WireType::varint) +
         varint(static_cast<std::uint64_t>(step));
}

// Summary.Value: tag = 1, simple_value = 2.
std::string value_of(const Scalar& scalar) {
  return delimited(1, scalar.tag) + key(2, WireType::fixed32) + bytes_of(static_cast<float>(scalar.value));
}

std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return bytes_of(std::rotr(crc, 15) + 0xa282ead8U);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

[[noreturn]] void fail(const fs::path& file) {
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), "cannot write " + file.string());
}

bool is_event_file(const fs::path& file) {
  return file.filename().string().find("tfevents") != std::string::npos;
}

// "events.out.tfevents.SECONDS.HOST.PROCESS", with seconds at which it comes last.
fs::path next_file(const fs::path& folder, double time) {
  std::string last;
  for (const fs::path& file : entries_of(folder)) {
    if (is_event_file(file)) last = file.filename().string();
  }
  for (auto seconds = static_cast<std::int64_t>(time);; ++seconds) {
    const std::string name = fmt::format("events.out.tfevents.{:010}.{}.{}", seconds, host_name(), ::getpid());
    if (name > last) return folder / name;
  }
}

}  // namespace

TensorboardFile::TensorboardFile(const fs::path& folder, double time, std::int64_t steps_done) {
  fs::create_directories(folder);
  file_ = next_file(folder, time);
  errno = 0;
  out_.open(file_, std::ios::binary | std::ios::app);
  if (!out_) fail(file_);
  write_record(event_head(time, 0) + delimited(3, "brain.Event:2"));  // file_version
  // session_log = 7 with status = 1 (START): TensorBoard forgets what it has of this step and later ones.
  write_record(event_head(time, steps_done + 1) + delimited(7, key(1, WireType::varint) + varint(1)));
}

void TensorboardFile::write(double time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) summary += delimited(1, value_of(scalar));
  write_record(event_head(time, step) + delimited(5, summary));  // summary
}

void TensorboardFile::write_record(const std::string& data) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(data.size()));
  errno = 0;
  out_ << length << masked_crc(length) << data << masked_crc(data);
  out_.flush();
  if (!out_) fail(file_);
}

namespace {

template <typename Number>
void add_ranks(std::vector<Scalar>& scalars, const char* name, const std::vector<Number>& values) {
  if (values.size() <= k_most_ranks_shown) {
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      scalars.push_back({fmt::format("{}/rank_{}", name, rank), static_cast<double>(values[rank])});
    return;
  }
  auto sorted = values;
  std::ranges::sort(sorted);
  scalars.push_back({fmt::format("{}/least", name), static_cast<double>(sorted.front())});
  scalars.push_back({fmt::format("{}/median", name), static_cast<double>(sorted[sorted.size() / 2])});
  scalars.push_back({fmt::format("{}/most", name), static_cast<double>(sorted.back())});
}

}  // namespace

std::vector<Scalar> scalars_of(const StepRecord& record) {
  std::vector<Scalar> scalars = {{"train/loss", record.loss},
                                 {"train/lr", record.lr},
                                 {"train/grad_norm", record.grad_norm},
                                 {"train/epoch", static_cast<double>(record.epoch)},
                                 {"train/consumed_samples", static_cast<double>(record.consumed_samples)},
                                 {"speed/samples_per_second", record.samples_per_second},
                                 {"speed/step_seconds", record.step_seconds},
                                 {"speed/exposed_comm_seconds", record.exposed_comm_seconds}};
  if (record.loss_scale) scalars.push_back({"train/loss_scale", *record.loss_scale});
  add_ranks(scalars, "compute_seconds", record.compute_seconds);
  add_ranks(scalars, "data_wait_seconds", record.data_wait_seconds);
  add_ranks(scalars, "memory_peak_bytes", record.memory_peak_bytes);
  return scalars;
}

std::vector<Scalar> scalars_of(const EvaluationResult& result) {
  std::vector<Scalar> scalars = {{"validation/loss", result.loss}};
  if (result.accuracy) scalars.push_back({"validation/accuracy", *result.accuracy});
  for (const MetricValue& metric : result.metrics)
    scalars.push_back({fmt::format("validation/{}", metric.name), metric.value});
  return scalars;
}

Listener write_tensorboard(const fs::path& folder) {
  return [folder, file = std::make_shared<std::optional<TensorboardFile>>()](const Event& event) {
    if (const auto* begins = std::get_if<event::TrainingBegins>(&event); begins != nullptr && !begins->looks_back)
      file->emplace(folder, unix_seconds(), begins->first_step);
    if (const auto* done = std::get_if<event::StepDone>(&event); done != nullptr && *file)
      (*file)->write(done->time, done->record.step, scalars_of(done->record));
    if (const auto* validated = std::get_if<event::Validated>(&event); validated != nullptr && *file)
      (*file)->write(validated->time, validated->step, scalars_of(validated->result));
  };
}

}  // namespace onebatch
