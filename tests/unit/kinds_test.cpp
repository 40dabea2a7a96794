#include "trainer/settings/kinds.hpp"

#include "trainer/optim/schedule.hpp"
#include "trainer/optim/schedule_kind.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/settings/key_types.hpp"
#include "trainer/settings/keys.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <stdexcept>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Option<ScheduleConfiguration, double> k_floor{"floor", 0.25};

// The rate falls as 1 / steps, to a floor.
ScheduleKind hyperbolic() {
  ScheduleKind kind;
  kind.name = "hyperbolic";
  kind.keys = {number_key({"floor", Changes::result, "hyperbolic: the least rate over `lr`"}, {0.0, 1.0}, k_floor)};
  kind.shares = {"gamma"};
  kind.rate = [](const ScheduleConfiguration& schedule, const ScheduledStep& step) {
    return step.lr * std::max(k_floor(schedule), 1.0 / static_cast<double>(1 + step.since));
  };
  return kind;
}

class KindsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_kind(hyperbolic());
    register_built_in_kinds();
  }

  static Key key(const std::string& path) {
    const auto keys = configuration_keys();
    return *std::ranges::find_if(keys, [&](const Key& one) { return one.path == path; });
  }
};

TEST_F(KindsTest, a_registered_kind_is_chosen_by_its_name_and_has_its_keys) {
  Configuration c;
  set_key(c, "schedule.kind", {std::string("hyperbolic")});
  EXPECT_DOUBLE_EQ(learning_rate(c.schedule, 2.0, 1, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c.schedule, 2.0, 9, 100), 0.5) << "the floor's default";
  set_key(c, "schedule.floor", {0.5});
  EXPECT_DOUBLE_EQ(learning_rate(c.schedule, 2.0, 9, 100), 1.0);
  EXPECT_EQ(key("schedule.floor").show(c), "0.5");
  EXPECT_THAT([&] { set_key(c, "schedule.floor", {2.0}); },
              ThrowsMessage<UserError>(HasSubstr("write a number from 0.0 up to 1.0")));
  EXPECT_THAT(key_rows(), HasSubstr("| `schedule.floor` | 0.25 | hyperbolic: the least rate over `lr` |"));
}

TEST_F(KindsTest, keys_know_the_kinds_that_they_belong_to) {
  EXPECT_EQ(key("schedule.gamma").kinds, (std::vector<std::string>{"hyperbolic", "step"}));
  EXPECT_EQ(key("optimizer.betas").kinds, (std::vector<std::string>{"adam", "adamw"}));
  EXPECT_TRUE(key("optimizer.lr").kinds.empty());
  Configuration c;
  EXPECT_FALSE(is_in_use(key("schedule.floor"), c));
  EXPECT_FALSE(is_in_use(key("data.validation.shape"), c)) << "there is no validation set";
  EXPECT_TRUE(is_in_use(key("schedule.warmup_steps"), c));
  c.schedule.kind = "hyperbolic";
  EXPECT_TRUE(is_in_use(key("schedule.floor"), c));
}

TEST_F(KindsTest, an_unknown_kind_is_refused_with_those_that_are_there) {
  ScheduleConfiguration schedule;
  schedule.kind = "parabolic";
  EXPECT_THAT([&] { learning_rate(schedule, 1.0, 0, 1); },
              ThrowsMessage<UserError>(HasSubstr(
                  "schedule.kind = \"parabolic\" is not one that this program knows: write \"constant\" or ")));
}

TEST_F(KindsTest, names_are_taken_once) {
  EXPECT_THAT([] { register_kind(hyperbolic()); }, ThrowsMessage<std::logic_error>(HasSubstr("registered twice")));
  ScheduleKind other = hyperbolic();
  other.name = "other";
  EXPECT_THAT([&] { register_kind(other); },
              ThrowsMessage<std::logic_error>(HasSubstr("name it among those it shares")));
}

}  // namespace
}  // namespace onebatch
