#include "trainer/events/event_stream.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace onebatch {
namespace {

Listener note_lines(std::vector<std::string>& heard, const std::string& who) {
  return on<event::Info>([&heard, who](const event::Info& info) { heard.push_back(who + info.line); });
}

TEST(EventStreamTest, all_listeners_hear_an_event_once_in_their_order) {
  std::vector<std::string> heard;
  EventStream events(0, {note_lines(heard, "a "), note_lines(heard, "b ")}, Fallbacks::said);
  events.info("one");
  events.listen(note_lines(heard, "c "));
  events.send(event::Info{"two"});
  EXPECT_EQ(heard, (std::vector<std::string>{"a one", "b one", "a two", "b two", "c two"}));
}

TEST(EventStreamTest, a_listener_hears_its_own_kind_alone) {
  std::int64_t sum = 0;
  EventStream events(0, {on<event::StepDone>([&](const event::StepDone& done) { sum += done.record.step; })},
                     Fallbacks::said);
  events.warn("no step");
  event::StepDone fifth;
  fifth.record.step = 5;
  events.send(fifth);
  events.send(event::CheckpointSaved{5, "step-5", {}, {}});
  EXPECT_EQ(sum, 5);
}

TEST(EventStreamTest, other_ranks_hear_their_own_failure_alone) {
  std::vector<std::size_t> heard;
  EventStream events(1, {[&](const Event& event) { heard.push_back(event.index()); }}, Fallbacks::said);
  events.info("a line");
  events.fallback("this", "that");
  events.send(event::PlanMade{});
  events.send(event::Ended{});
  events.send(event::Failed{ExitCode::does_not_fit, "no room"});
  EXPECT_EQ(heard, std::vector<std::size_t>{Event(event::Failed{}).index()});
}

TEST(EventStreamTest, a_fallback_is_sent_once) {
  std::vector<std::string> heard;
  const auto note = [&](const event::Fallback& fallback) { heard.push_back(fallback.asked + " > " + fallback.done); };
  EventStream events(0, {on<event::Fallback>(note)}, Fallbacks::said);
  for (int i = 0; i < 3; ++i) events.fallback("this", "that");
  events.fallback("this", "another");
  EXPECT_EQ(heard, (std::vector<std::string>{"this > that", "this > another"}));
}

TEST(EventStreamTest, a_refused_fallback_throws_the_same_on_every_rank) {
  for (const int rank : {0, 1, 2}) {
    EventStream events(rank, {}, Fallbacks::refused);
    for (int i = 0; i < 2; ++i) {
      try {
        events.fallback("this", "that");
        FAIL() << "on rank " << rank;
      } catch (const AgreedError& error) {
        EXPECT_EQ(error.code(), ExitCode::user_error);
        EXPECT_STREQ(error.what(), "--strict: asked for this; did that");
      }
    }
  }
}

TEST(EventStreamTest, what_a_listener_throws_ends_the_run_but_hides_no_failure) {
  int told = 0;
  EventStream events(
      0, {[](const Event&) { throw std::runtime_error("the disk is full"); }, [&](const Event&) { ++told; }},
      Fallbacks::said);
  EXPECT_THROW(events.info("a line"), std::runtime_error);
  EXPECT_EQ(told, 0);
  events.send(event::Failed{});
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace onebatch
