#include "trainer/events/step_writer.hpp"

#include "scratch_folder.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <system_error>

namespace onebatch {
namespace {

using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

StepRecord record_of(std::int64_t step) {
  StepRecord record;
  record.step = step;
  return record;
}

std::vector<std::int64_t> steps_in(const std::string& text) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    steps.push_back(nlohmann::json::parse(line).at("step").get<std::int64_t>());
  return steps;
}

TEST(StepWriterTest, a_line_per_step_survives_at_once) {
  const ScratchFolder folder;
  StepWriter writer(folder / "m.jsonl", folder / "s.jsonl", 0);
  for (const std::int64_t step : {1, 2}) {
    writer.write(record_of(step), 0.5);
    writer.write_samples(step, {step, 7});
  }
  EXPECT_EQ(steps_in(read_bytes(folder / "m.jsonl")), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(read_bytes(folder / "s.jsonl"), "{\"step\":1,\"indices\":[1,7]}\n{\"step\":2,\"indices\":[2,7]}\n");
}

TEST(StepWriterTest, resuming_cuts_back_later_and_torn_lines) {
  const ScratchFolder folder;
  write_bytes(folder / "m.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st");
  StepWriter writer(folder / "m.jsonl", "", 2);
  writer.write(record_of(3), 0.5);
  EXPECT_EQ(steps_in(read_bytes(folder / "m.jsonl")), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(StepWriterTest, a_step_beyond_all_steps_is_cut_back) {
  const ScratchFolder folder;
  const auto file = folder / "metrics.jsonl";
  write_bytes(file, "{\"step\":1}\n{\"step\":18446744073709551615}\n");
  const StepWriter writer(file, {}, 7);
  EXPECT_EQ(read_bytes(file), "{\"step\":1}\n");
}

TEST(StepWriterTest, a_listener_begins_where_training_does) {
  const ScratchFolder folder;
  write_bytes(folder / "m.jsonl", "{\"step\":1}\n{\"step\":2}\n");
  const Listener listener = write_steps(folder / "m.jsonl", folder / "s.jsonl");
  listener(event::TrainingBegins{1, 3});
  listener(event::StepDone{record_of(2), {4, 9}});
  EXPECT_EQ(steps_in(read_bytes(folder / "m.jsonl")), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(read_bytes(folder / "s.jsonl"), "{\"step\":2,\"indices\":[4,9]}\n");
}

TEST(StepWriterTest, validations_stand_once_each) {
  const ScratchFolder folder;
  const auto file = folder / "v.jsonl";
  write_bytes(file, "{\"step\":2}\n{\"step\":4}\n{\"step\":6}\n{\"st");
  const Listener listener = write_validations(file);
  listener(event::TrainingBegins{4, 9});
  EXPECT_EQ(steps_in(read_bytes(file)), (std::vector<std::int64_t>{2, 4}));
  listener(event::Validated{.epoch = 2,
                            .result = {.loss = 0.5, .accuracy = 0.25, .samples = 8},
                            .step = 4,
                            .consumed_samples = 40,
                            .time = 7.5});
  listener(event::StepDone{record_of(5), {}});
  listener(event::Validated{.epoch = 3,
                            .result = {.loss = 0.25, .accuracy = {}, .samples = 8},
                            .step = 5,
                            .consumed_samples = 50,
                            .lr = 0.125,
                            .time = 9.0});
  EXPECT_EQ(read_bytes(file),
            "{\"step\":2}\n{\"step\":4,\"epoch\":2,\"consumed_samples\":40,\"time\":7.5,\"lr\":null,\"samples\":8,"
            "\"loss\":0.5,\"accuracy\":0.25}\n{\"step\":5,\"epoch\":3,\"consumed_samples\":50,\"time\":9.0,"
            "\"lr\":0.125,\"samples\":8,\"loss\":0.25}\n");
}

TEST(StepWriterTest, no_path_writes_nothing) {
  StepWriter writer("", "", 0);
  writer.write(record_of(1), 0.5);
  writer.write_samples(1, {1});
}

TEST(StepWriterTest, a_place_that_cannot_be_written_is_named) {
  EXPECT_THROW(StepWriter("/nonexistent/m.jsonl", "", 0), std::system_error);
}

TEST(StepWriterTest, what_cannot_be_read_is_not_lost) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "m.jsonl");  // opens, and fails at the first read
  write_bytes(folder / "m.jsonl" / "inside", "kept");
  EXPECT_THROW(StepWriter(folder / "m.jsonl", "", 5), std::system_error);
  EXPECT_EQ(read_bytes(folder / "m.jsonl" / "inside"), "kept");
}

}  // namespace
}  // namespace onebatch
