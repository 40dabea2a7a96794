#include "trainer/documents/documents.hpp"

#include "trainer/base/error.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

namespace onebatch {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string refusal(const std::string& text) {
  try {
    parse_profile(text, "p.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DocumentsTest, a_profile_by_hand_needs_two_fields) {
  const ClusterProfile profile =
      parse_profile(R"({"ranks": [{"max_micro_batch": 128, "step_seconds": [[32, 0.0987], [64, 0.1869]]}]})", "p.json");
  ASSERT_EQ(profile.ranks.size(), 1U);
  EXPECT_EQ(profile.ranks[0].max_micro_batch, 128);
  EXPECT_EQ(profile.ranks[0].min_micro_batch, 1);
  EXPECT_DOUBLE_EQ(profile.ranks[0].step_seconds[1].seconds, 0.1869);
}

TEST(DocumentsTest, a_profile_survives_the_round_trip) {
  ClusterProfile profile;
  RankProfile rank;
  rank.host = "a\"b\xff";
  rank.device = "RTX 2080 Ti";
  rank.max_micro_batch = 77;
  rank.largest_micro_batch = 81;
  rank.step_seconds = {{1, 0.1}, {77, 1.0 / 3.0}};
  rank.trials = {{81, true, false, 1000, 0.5}, {82, false, true, 2000, 0.0}};
  profile.ranks = {rank};
  const RankProfile back = parse_profile(to_json(profile), "p.json").ranks.at(0);
  EXPECT_EQ(back.device, rank.device);
  EXPECT_EQ(back.max_micro_batch, 77);
  EXPECT_EQ(back.step_seconds[1].seconds, 1.0 / 3.0);
  EXPECT_TRUE(back.trials[1].out_of_memory);
}

TEST(DocumentsTest, a_plan_survives_the_round_trip) {
  EpochPlan plan;
  plan.full.global_batch_size = 50;
  plan.full.ranks = {{0, "a", 50, {{10, 1}, {20, 2}}, {0.02, 0.04}, 0.1, 0.0}, {1, "b", 0, {}, {}, 0.0, 1.0}};
  plan.full.ranks[1].recomputes = true;
  plan.full.notes = {"said"};
  plan.last = plan.full;
  const EpochPlan back = parse_epoch_plan(to_json(plan), "plan.json");
  EXPECT_EQ(back.full.ranks[0].micro_batches, plan.full.ranks[0].micro_batches);
  EXPECT_FALSE(back.full.ranks[0].recomputes);
  EXPECT_TRUE(back.full.ranks[1].recomputes);
  EXPECT_EQ(back.full.notes, plan.full.notes);
  EXPECT_FALSE(back.full.equal_split_seconds.has_value());
  EXPECT_TRUE(back.last.has_value());
}

TEST(DocumentsTest, mistakes_are_named_with_their_place) {
  EXPECT_THAT(refusal("[]"), HasSubstr("ranks"));
  EXPECT_THAT(refusal(R"({"ranks": []})"), HasSubstr("empty"));
  EXPECT_THAT(refusal(R"({"ranks": [{"step_seconds": [[1, 1]]}]})"),
              HasSubstr("ranks[0] lacks the field \"max_micro_batch\""));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": "8", "step_seconds": [[1, 1]]}]})"),
              HasSubstr("ranks[0].max_micro_batch must be a whole number"));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": 8, "step_seconds": []}]})"),
              HasSubstr("ranks[0].step_seconds"));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": 8, "step_seconds": [[1, -1]]}]})"),
              HasSubstr("step_seconds[0][1]"));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": 8, "step_seconds": [[1, 1], [1, 2]]}]})"), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": 1e300, "step_seconds": [[1, 1]]}]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"({"ranks": [{"max_micro_batch": 18446744073709551615, "step_seconds": [[1, 1]]}]})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("p.json"));
}

TEST(DocumentsTest, damaged_text_is_refused_and_never_misread) {
  const std::string whole =
      R"({"ranks": [{"max_micro_batch": 128, "step_seconds": [[32, 0.0987], [64, 0.1869]], "device": "V100"}]})";
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal(whole.substr(0, length)), "accepted") << length;
  std::mt19937 generator(3);
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole;
    for (int flips = 0; flips < 3; ++flips) text[generator() % text.size()] = static_cast<char>(generator() % 256);
    try {
      for (const RankProfile& rank : parse_profile(text, "p.json").ranks) {
        ASSERT_GE(rank.max_micro_batch, 0);
        for (const auto& [size, seconds] : rank.step_seconds)
          ASSERT_TRUE(size >= 1 && std::isfinite(seconds) && seconds >= 0.0);
      }
    } catch (const UserError&) {
    }
  }
}

TEST(DocumentsTest, what_is_not_finite_becomes_null) {
  TrainResult result;
  result.train_loss = std::nan("");
  EXPECT_THAT(to_json(result), HasSubstr("\"train_loss\": null"));
}

TEST(DocumentsTest, a_start_without_a_step_has_no_times) {
  const std::string text = to_json(TrainResult{});
  for (const char* name : {"samples_per_second", "median", "p95", "predicted_step_seconds"})
    EXPECT_THAT(text, HasSubstr("\"" + std::string(name) + "\": null"));
}

TEST(DocumentsTest, metrics_stand_by_their_names_and_the_confusion_matrix_where_there_is_one) {
  EvaluationResult result{.loss = 0.5, .accuracy = 0.25, .samples = 8, .metrics = {{"top_2", 0.75}, {"r2", HUGE_VAL}}};
  const ValidationMoment moment{.step = 3, .epoch = 1};
  EXPECT_THAT(validation_json_line(moment, result),
              HasSubstr(R"("samples":8,"loss":0.5,"accuracy":0.25,"top_2":0.75,"r2":null})"));
  EXPECT_THAT(to_json(result), Not(HasSubstr("confusion_matrix")));
  result.confusion_matrix = {{3, 1}, {0, 4}};
  EXPECT_THAT(validation_json_line(moment, result), HasSubstr(R"("confusion_matrix":[[3,1],[0,4]]})"));
  EXPECT_THAT(to_json(result), HasSubstr("\"top_2\": 0.75"));
  TrainResult trained;
  trained.validation = result;
  EXPECT_THAT(to_json(trained), HasSubstr("\"confusion_matrix\""));
  EXPECT_THAT(to_json(TrainResult{}), HasSubstr("\"validation_metrics\": null"));
}

TEST(DocumentsTest, a_step_is_one_line) {
  StepRecord record;
  record.step = 3;
  record.compute_seconds = {0.5, 0.25};
  record.data_wait_seconds = {0.0625, 0.0};
  const std::string line = to_json_line(record, 12.5);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, HasSubstr("\"compute_seconds\":[0.5,0.25]"));
  EXPECT_THAT(line, HasSubstr("\"data_wait_seconds\":[0.0625,0.0]"));
  EXPECT_EQ(samples_json_line(2, {5, 1}), R"({"step":2,"indices":[5,1]})");
}

}  // namespace
}  // namespace onebatch
