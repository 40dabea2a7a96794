#include "trainer/events/step_writer.hpp"

#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <memory>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const fs::path& file) {
  throw std::system_error(errno != 0 ? errno : EIO, std::generic_category(), what + file.string());
}

// The step of a line; none for a line that was torn, or is of no step that there can be.
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return std::nullopt;
  if (json["step"].is_number_unsigned() && json["step"].get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    return std::nullopt;
  return json["step"].get<std::int64_t>();
}

// A run that goes on from a checkpoint repeats the steps after it: their lines would stand twice.
void cut_back(const fs::path& file, std::int64_t resume_step) {
  if (!fs::exists(file)) return;
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto step = step_of(line);
    if (step && *step <= resume_step) kept += line + "\n";
  }
  if (!in.eof() || in.bad()) fail("cannot read ", file);  // or what could not be read would be lost
  write_text_atomically(file, kept);
}

std::ofstream open(const fs::path& file, std::int64_t resume_step) {
  if (file.empty()) return {};
  cut_back(file, resume_step);
  std::ofstream out(file, std::ios::app);
  if (!out) fail("cannot write ", file);
  return out;
}

void write_line(std::ofstream& out, const fs::path& file, const std::string& line) {
  errno = 0;
  out << line << "\n";
  out.flush();
  if (!out) fail("cannot write ", file);
}

}  // namespace

StepWriter::StepWriter(const fs::path& metrics_file, const fs::path& samples_file, std::int64_t resume_step)
    : metrics_path_(metrics_file),
      samples_path_(samples_file),
      metrics_(open(metrics_file, resume_step)),
      samples_(open(samples_file, resume_step)) {}

void StepWriter::write(const StepRecord& record, double time) {
  if (!metrics_path_.empty()) write_line(metrics_, metrics_path_, to_json_line(record, time));
}

void StepWriter::write_samples(std::int64_t step, const std::vector<std::int64_t>& indices) {
  if (!samples_path_.empty()) write_line(samples_, samples_path_, samples_json_line(step, indices));
}

namespace {

class ValidationWriter {
 public:
  explicit ValidationWriter(fs::path file) : file_(std::move(file)) {}

  void operator()(const Event& event) {
    if (const auto* begins = std::get_if<event::TrainingBegins>(&event)) {
      looks_back_ = begins->looks_back;
      if (!looks_back_) cut_back(file_, begins->first_step);
    }
    const auto* validated = std::get_if<event::Validated>(&event);
    if (validated != nullptr && !looks_back_) {
      cut_back(file_, validated->step - 1);  // a complete run that is started again validates again
      std::ofstream out(file_, std::ios::app);
      write_line(out, file_, validation_json_line(moment_of(*validated), validated->result));
    }
  }

 private:
  static ValidationMoment moment_of(const event::Validated& validated) {
    return {validated.step, validated.epoch, validated.consumed_samples, validated.lr, validated.time};
  }

  fs::path file_;
  bool looks_back_ = false;
};

}  // namespace

Listener write_validations(const fs::path& file) {
  return ValidationWriter(file);
}

Listener write_steps(const fs::path& metrics_file, const fs::path& samples_file) {
  return [=, writer = std::make_shared<std::optional<StepWriter>>()](const Event& event) {
    if (const auto* begins = std::get_if<event::TrainingBegins>(&event); begins != nullptr && !begins->looks_back)
      writer->emplace(metrics_file, samples_file, begins->first_step);
    if (const auto* done = std::get_if<event::StepDone>(&event); done != nullptr && *writer) {
      (*writer)->write(done->record, done->time);
      (*writer)->write_samples(done->record.step, done->samples);
    }
  };
}

}  // namespace onebatch
