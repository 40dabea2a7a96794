#include "trainer/device/allocator_settings.hpp"

#include <gmock/gmock.h>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MemoryConfiguration of(bool expandable, std::optional<std::int64_t> split, double threshold) {
  MemoryConfiguration memory;
  memory.expandable_segments = expandable;
  memory.max_split_size_mb = split;
  memory.garbage_collection_threshold = threshold;
  return memory;
}

TEST(AllocatorSettingsTest, nothing_asked_leaves_the_environment_alone) {
  EXPECT_EQ(allocator_settings({}, "").text, "");
  EXPECT_EQ(allocator_settings({}, "max_split_size_mb:64").text, "");
}

TEST(AllocatorSettingsTest, each_key_is_an_option) {
  EXPECT_EQ(allocator_settings(of(true, 128, 0.8), "").text,
            "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8");
  EXPECT_EQ(allocator_settings(of(false, 21, 0.0), "").text, "max_split_size_mb:21");
}

TEST(AllocatorSettingsTest, other_options_of_the_environment_stay) {
  const auto settings =
      allocator_settings(of(true, {}, 0.0), "roundup_power2_divisions:[256:1, 512:2], backend:native");
  EXPECT_EQ(settings.text, "roundup_power2_divisions:[256:1,512:2],backend:native,expandable_segments:True");
  EXPECT_THAT(settings.overridden, IsEmpty());
}

TEST(AllocatorSettingsTest, the_same_option_goes_before_and_is_named) {
  const auto settings = allocator_settings(of(false, 64, 0.0), "max_split_size_mb:128,backend:native");
  EXPECT_EQ(settings.text, "backend:native,max_split_size_mb:64");
  EXPECT_THAT(settings.overridden, ElementsAre("max_split_size_mb:128"));
}

TEST(AllocatorSettingsTest, the_same_value_is_no_difference) {
  EXPECT_THAT(allocator_settings(of(false, 64, 0.0), "max_split_size_mb:64").overridden, IsEmpty());
}

}  // namespace
}  // namespace onebatch
