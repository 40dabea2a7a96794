#include "trainer/checkpoint/run_state.hpp"

#include "trainer/base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

namespace onebatch {
namespace {

using ::testing::HasSubstr;

RunState example() {
  RunState state;
  state.step = 18;
  state.global_batch_size = 7;
  state.world_size = 2;
  state.devices = {"cpu", "cpu"};
  state.identity = {{"model.kind", "mlp"}};
  return state;
}

nlohmann::json example_json() {
  return nlohmann::json::parse(to_json(example()));
}

std::string refusal(const nlohmann::json& json) {
  try {
    parse_run_state(json.dump(), "state.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunStateTest, survives_the_round_trip) {
  RunState state = example();
  state.position = {2, 9, 257};
  state.loss_scale = 65536.0;
  state.loss_scale_steps = 3;
  state.bases = {-900, 4};
  state.shares = {7, 0};
  const RunState read = parse_run_state(to_json(state), "state.json");
  EXPECT_EQ(read.step, 18);
  EXPECT_EQ(read.position, state.position);
  EXPECT_EQ(read.devices, state.devices);
  EXPECT_EQ(read.loss_scale, 65536.0);
  EXPECT_EQ(read.loss_scale_steps, 3);
  EXPECT_EQ(read.bases, state.bases);
  EXPECT_EQ(read.shares, state.shares);
  EXPECT_EQ(read.identity, state.identity);
  EXPECT_FALSE(read.plan.has_value());
}

TEST(RunStateTest, validations_survive_the_round_trip) {
  RunState state = example();
  EXPECT_EQ(parse_run_state(to_json(state), "state.json").validations, std::nullopt) << "as of earlier versions";
  state.validations = ValidationState{};
  EXPECT_EQ(parse_run_state(to_json(state), "state.json").validations, state.validations);
  state.validations = ValidationState{16, {"loss", false, 0.1 + 0.2, 8, 3}, {"f1_macro", true, std::nullopt, 0, 2}};
  EXPECT_EQ(parse_run_state(to_json(state), "state.json").validations, state.validations) << "to the last bit";
  nlohmann::json json = nlohmann::json::parse(to_json(state));
  json["validations"]["early_stopping"]["without"] = -1;
  EXPECT_THAT(refusal(json), HasSubstr("validations.early_stopping.without must be"));
  json["validations"]["early_stopping"] = {{"metric", "loss"}};
  EXPECT_THAT(refusal(json), HasSubstr("greater_is_better"));
}

TEST(RunStateTest, shared_names_survive_the_round_trip) {
  RunState state = example();
  EXPECT_EQ(parse_run_state(to_json(state), "state.json").shared_names, std::nullopt) << "as of earlier versions";
  using Names = std::map<std::string, std::string>;
  for (const Names& names : {Names{}, Names{{"head.weight", "words.weight"}, {"b", "a"}}}) {
    state.shared_names = names;
    EXPECT_EQ(parse_run_state(to_json(state), "state.json").shared_names, names);
  }
  auto json = example_json();
  json["shared_names"] = {{"head.weight", 1}};
  EXPECT_THAT(refusal(json), HasSubstr("state.json:.shared_names.head.weight"));
}

TEST(RunStateTest, a_plan_without_times_of_its_micro_batches_is_read) {
  RunState state = example();
  RankPlan rank;
  rank.samples = 7;
  rank.micro_batches = {{7, 1}};
  state.plan.emplace();
  state.plan->full.global_batch_size = 7;
  state.plan->full.ranks = {rank};
  const RunState read = parse_run_state(to_json(state), "state.json");
  ASSERT_TRUE(read.plan.has_value());
  EXPECT_EQ(read.plan->full.ranks.at(0).micro_batches, rank.micro_batches);
  EXPECT_TRUE(read.plan->full.ranks.at(0).micro_batch_seconds.empty());
}

TEST(RunStateTest, a_loss_scale_is_a_number_above_0_and_a_count) {
  for (const auto& [scale, steps] : std::vector<std::pair<nlohmann::json, nlohmann::json>>{
           {-1.0, 0}, {0.0, 0}, {"1", 0}, {2.0, -1}, {2.0, 1.5}, {2.0, 1e300}, {2.0, nullptr}}) {
    auto json = example_json();
    json["loss_scale"] = {{"scale", scale}, {"steps_since_change", steps}};
    EXPECT_THAT(refusal(json), HasSubstr("state.json:.loss_scale.")) << json;
  }
}

TEST(RunStateTest, shares_are_one_of_each_rank) {
  const std::map<std::string, std::string> wrong = {
      {"[1]", "has 1 shares of 2 rank(s)"}, {"[1, -1]", "state.json:.shares"}, {"[1, 0.5]", "state.json:.shares"}};
  for (const auto& [shares, said] : wrong) {
    nlohmann::json json = example_json();
    json["shares"] = nlohmann::json::parse(shares);
    EXPECT_THAT(refusal(json), HasSubstr(said)) << shares;
  }
}

TEST(RunStateTest, bases_are_whole_numbers_that_are_powers_of_gradients) {
  for (const nlohmann::json& bases :
       {nlohmann::json{1.5}, nlohmann::json{1e300}, nlohmann::json{INT64_MAX}, nlohmann::json("x")}) {
    auto json = example_json();
    json["bases"] = bases;
    EXPECT_THAT(refusal(json), HasSubstr("state.json:.bases")) << bases;
  }
}

TEST(RunStateTest, what_is_nested_deeper_than_any_state_is_refused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THROW(parse_run_state(R"({"format": 1, "plan": )" + deep + "}", "state.json"), UserError);
}

}  // namespace
}  // namespace onebatch
