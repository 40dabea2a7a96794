#include "trainer/events/event_json.hpp"

#include "trainer/settings/event_names.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <set>

namespace onebatch {
namespace {

using nlohmann::json;

template <std::size_t... Kinds>
std::vector<Event> one_of_each(std::index_sequence<Kinds...> /*kinds*/) {
  return {Event(std::in_place_index<Kinds>)...};
}

std::vector<Event> one_of_each() {
  return one_of_each(std::make_index_sequence<std::variant_size_v<Event>>());
}

TEST(EventJsonTest, every_event_has_a_name_that_is_listed) {
  std::set<std::string_view> names = {"run"};
  for (const Event& event : one_of_each()) names.insert(name_of(event));
  EXPECT_EQ(names, std::set<std::string_view>(k_event_names.begin(), k_event_names.end()));
}

TEST(EventJsonTest, every_event_is_one_line_with_its_name_number_and_time) {
  for (const Event& event : one_of_each()) {
    const std::string line = to_json_line(event, 7);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const json read = json::parse(line);
    EXPECT_EQ(read.at("event"), name_of(event));
    EXPECT_EQ(read.at("number"), 7);
    EXPECT_NEAR(read.at("time").get<double>(), unix_seconds(), 5.0) << line;
    EXPECT_EQ(nlohmann::ordered_json::parse(line).dump(), line) << "no member stands twice";
  }
}

TEST(EventJsonTest, a_step_has_what_its_line_in_metrics_jsonl_has) {
  event::StepDone done;
  done.record.step = 5;
  done.record.loss = 0.25;
  done.time = 12.5;
  const json read = json::parse(to_json_line(done, 1));
  EXPECT_EQ(read.at("step"), 5);
  EXPECT_EQ(read.at("loss"), 0.25);
  EXPECT_EQ(read.at("time"), 12.5);
}

TEST(EventJsonTest, a_validation_has_its_moment_and_its_metrics) {
  const json read = json::parse(to_json_line(
      event::Validated{
          .epoch = 1, .result = {.loss = 0.5, .accuracy = 0.75, .samples = 8}, .step = 6, .lr = 0.1, .time = 3.0},
      2));
  EXPECT_EQ(read.at("step"), 6);
  EXPECT_EQ(read.at("accuracy"), 0.75);
  EXPECT_EQ(read.at("lr"), 0.1);
  EXPECT_EQ(read.at("time"), 3.0);
}

TEST(EventJsonTest, plans_and_results_are_documents_inside) {
  const json plan = json::parse(to_json_line(event::PlanMade{}, 1));
  EXPECT_TRUE(plan.at("plan").contains("ranks"));
  event::Ended ended;
  ended.result.steps = 9;
  ended.result.stopped_by_signal = true;
  const json read = json::parse(to_json_line(ended, 1));
  EXPECT_EQ(read.at("result").at("steps"), 9);
  EXPECT_EQ(read.at("stopped_by_signal"), true);
}

TEST(EventJsonTest, text_that_is_not_utf_8_breaks_no_line) {
  const json read = json::parse(to_json_line(event::Info{"a\xff\"b\nc"}, 1));
  EXPECT_EQ(read.at("line"), "a\xef\xbf\xbd\"b\nc");
}

}  // namespace
}  // namespace onebatch
