#include "trainer/events/csv_writer.hpp"

#include "scratch_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <system_error>

namespace onebatch {
namespace {

using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

event::StepDone step_of(std::int64_t step, std::vector<double> compute_seconds) {
  event::StepDone done;
  done.time = 100.5;
  done.record.step = step;
  done.record.loss = 0.25;
  done.record.lr = 1e-5;
  done.record.compute_seconds = std::move(compute_seconds);
  return done;
}

constexpr const char* k_header =
    "step,epoch,consumed_samples,time,loss,lr,grad_norm,skipped,loss_scale,step_seconds,exposed_comm_seconds,"
    "samples_per_second,reduced_bytes,plan";

TEST(CsvWriterTest, a_row_has_a_column_for_each_rank) {
  const ScratchFolder folder;
  CsvTable table(folder / "m.csv", 0);
  table.append(csv_row(step_of(1, {0.5, 0.75})));
  event::StepDone overflowed = step_of(2, {0.5, 1.0});
  overflowed.record.grad_norm = std::nan("");
  overflowed.record.skipped = true;
  overflowed.record.loss_scale = 1024.0;
  table.append(csv_row(overflowed));
  EXPECT_EQ(read_bytes(folder / "m.csv"), std::string(k_header) +
                                              ",compute_seconds_0,compute_seconds_1\n"
                                              "1,0,0,100.5,0.25,1e-05,0,0,,0,0,0,0,0,0.5,0.75\n"
                                              "2,0,0,100.5,0.25,1e-05,,1,1024,0,0,0,0,0,0.5,1\n");
}

TEST(CsvWriterTest, going_on_cuts_later_and_torn_rows) {
  const ScratchFolder folder;
  write_bytes(folder / "m.csv", "step,loss\n1,0.5\n2,0.25\n3,0.125\n4,0.0");
  CsvTable table(folder / "m.csv", 2);
  EXPECT_EQ(read_bytes(folder / "m.csv"), "step,loss\n1,0.5\n2,0.25\n");
  table.append({{"step", "3"}, {"loss", "0.75"}});
  EXPECT_EQ(read_bytes(folder / "m.csv"), "step,loss\n1,0.5\n2,0.25\n3,0.75\n");
}

TEST(CsvWriterTest, a_run_that_goes_on_on_more_ranks_has_more_columns) {
  const ScratchFolder folder;
  write_bytes(folder / "m.csv", "step,seconds_0\n1,0.5\n");
  CsvTable table(folder / "m.csv", 1);
  table.append({{"step", "2"}, {"seconds_0", "1"}, {"seconds_1", "2"}});
  table.append({{"step", "3"}, {"seconds_0", "4"}});
  EXPECT_EQ(read_bytes(folder / "m.csv"), "step,seconds_0,seconds_1\n1,0.5,\n2,1,2\n3,4,\n");
}

TEST(CsvWriterTest, a_torn_header_is_no_header) {
  const ScratchFolder folder;
  write_bytes(folder / "m.csv", "step,lo");
  CsvTable table(folder / "m.csv", 5);
  EXPECT_FALSE(std::filesystem::exists(folder / "m.csv"));
  table.append({{"step", "6"}, {"loss", "0.5"}});
  EXPECT_EQ(read_bytes(folder / "m.csv"), "step,loss\n6,0.5\n");
}

TEST(CsvWriterTest, validations_stand_once_each_with_what_was_measured) {
  const ScratchFolder folder;
  write_bytes(folder / "v.csv", "step,loss\n4,0.5\n6,0.25\n");
  const Listener listener = write_csv(folder / "m.csv", folder / "v.csv");
  listener(event::TrainingBegins{6, 9});
  event::Validated again{.epoch = 2, .result = {.loss = 0.75, .samples = 8}, .step = 6, .time = 1.0};
  again.result.metrics = {{"f1_macro", 0.5}};
  listener(again);
  listener(step_of(7, {1.0}));
  listener(
      event::Validated{.epoch = 3, .result = {.loss = 1.0, .accuracy = 0.5, .samples = 8}, .step = 7, .time = 2.0});
  EXPECT_EQ(read_bytes(folder / "v.csv"),
            "step,loss,epoch,consumed_samples,time,lr,samples,f1_macro,accuracy\n"
            "4,0.5,,,,,,,\n"
            "6,0.75,2,0,1,,8,0.5,\n"
            "7,1,3,0,2,,8,,0.5\n");
  EXPECT_TRUE(read_bytes(folder / "m.csv").starts_with(k_header));
}

TEST(CsvWriterTest, names_that_hold_anything_are_quoted_and_found_again) {
  const ScratchFolder folder;
  const std::vector<CsvCell> row = {{"step", "1"}, {"a,b", "2"}, {"say \"c\"", "3"}, {"d\n4,5", "6"}};
  CsvTable(folder / "v.csv", 0).append(row);
  const std::string header = "step,\"a,b\",\"say \"\"c\"\"\",\"d\n4,5\"\n";
  EXPECT_EQ(read_bytes(folder / "v.csv"), header + "1,2,3,6\n");
  CsvTable later(folder / "v.csv", 1);
  later.append({{"step", "2"}, {"d\n4,5", "7"}});
  later.append({{"step", "3"}, {"more", "8"}});
  EXPECT_EQ(read_bytes(folder / "v.csv"), header.substr(0, header.size() - 1) + ",more\n1,2,3,6,\n2,,,7,\n3,,,,8\n");
}

TEST(CsvWriterTest, a_place_that_cannot_be_written_is_named) {
  CsvTable table("/nonexistent/m.csv", 0);
  try {
    table.append({{"step", "1"}});
    FAIL() << "there is no such folder";
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/m.csv"), std::string::npos);
  }
}

TEST(CsvWriterTest, what_cannot_be_read_is_not_lost) {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "m.csv");
  write_bytes(folder / "m.csv" / "inside", "kept");
  EXPECT_THROW(CsvTable(folder / "m.csv", 5), std::system_error);
  EXPECT_EQ(read_bytes(folder / "m.csv" / "inside"), "kept");
  std::filesystem::create_directory(folder / "empty.csv");
  EXPECT_THROW(CsvTable(folder / "empty.csv", 5), std::system_error);
  EXPECT_TRUE(std::filesystem::exists(folder / "empty.csv"));
}

}  // namespace
}  // namespace onebatch
