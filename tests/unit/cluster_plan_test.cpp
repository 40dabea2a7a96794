// Plans for clusters that are not here: lists of devices, the network's model, sweeps.
#include "trainer/plan/elsewhere/all_reduce_model.hpp"
#include "trainer/plan/elsewhere/device_list.hpp"
#include "trainer/plan/elsewhere/sweep.hpp"

#include "trainer/base/error.hpp"
#include "trainer/plan/plan_cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace onebatch {
namespace {

using ::testing::HasSubstr;

ClusterProfile profile_of(const std::vector<std::string>& names) {
  ClusterProfile profile;
  for (const std::string& name : names) {
    RankProfile rank;
    rank.device = name;
    rank.max_micro_batch = 64;
    rank.step_seconds = {{1, 0.01}, {64, 0.64}};
    profile.ranks.push_back(rank);
  }
  return profile;
}

RankProfile rank_of(std::int64_t max_micro_batch, double of_each, double of_a_sample) {
  RankProfile rank;
  rank.max_micro_batch = max_micro_batch;
  rank.step_seconds = {{1, of_each + of_a_sample}};
  if (max_micro_batch > 1)
    rank.step_seconds.push_back({max_micro_batch, of_each + of_a_sample * static_cast<double>(max_micro_batch)});
  return rank;
}

TEST(RecomputingRanksTest, activations_are_computed_again_where_the_step_gets_shorter) {
  Configuration configuration;
  configuration.batch.global_batch_size = 64;
  const ClusterProfile keeping{{rank_of(16, 0.018, 0.002), rank_of(1, 0.018, 0.002)}};
  const ClusterProfile recomputing{{rank_of(48, 0.018, 0.003), rank_of(8, 0.018, 0.003)}};
  EXPECT_EQ(ranks_that_should_recompute(keeping, recomputing, configuration), (std::vector<bool>{false, true}));
  const ClusterProfile mixed{{keeping.ranks[0], recomputing.ranks[1]}};
  EXPECT_LT(planned_step_seconds(mixed, configuration), 0.9 * planned_step_seconds(keeping, configuration));
}

TEST(RecomputingRanksTest, none_does_where_larger_micro_batches_are_no_quicker) {
  Configuration configuration;
  configuration.batch.global_batch_size = 64;
  const ClusterProfile keeping{{rank_of(16, 0.0, 0.002), rank_of(1, 0.0, 0.002)}};
  const ClusterProfile recomputing{{rank_of(48, 0.0, 0.0026), rank_of(8, 0.0, 0.0026)}};
  EXPECT_EQ(ranks_that_should_recompute(keeping, recomputing, configuration), (std::vector<bool>{false, false}));
}

TEST(RecomputingRanksTest, a_rank_that_cannot_do_otherwise_is_not_asked) {
  Configuration configuration;
  configuration.batch.global_batch_size = 64;
  ClusterProfile keeping{{rank_of(16, 0.018, 0.002), rank_of(1, 0.018, 0.003)}};
  keeping.ranks[1].recomputes = true;
  const ClusterProfile recomputing{{rank_of(48, 0.018, 0.003), rank_of(8, 0.018, 0.003)}};
  EXPECT_FALSE(ranks_that_should_recompute(keeping, recomputing, configuration)[1]);
}

TEST(RecomputingRanksTest, like_ranks_do_it_together) {
  Configuration configuration;
  configuration.batch.global_batch_size = 512;
  const ClusterProfile keeping{std::vector<RankProfile>(8, rank_of(1, 0.018, 0.002))};
  const ClusterProfile recomputing{std::vector<RankProfile>(8, rank_of(8, 0.018, 0.003))};
  EXPECT_EQ(ranks_that_should_recompute(keeping, recomputing, configuration), std::vector<bool>(8, true));
}

TEST(RecomputingRanksTest, a_plan_there_is_none_of_otherwise_is_taken) {
  Configuration configuration;
  configuration.batch.global_batch_size = 64;
  configuration.batch.gradient_accumulation_steps = 4;
  const ClusterProfile keeping{{rank_of(4, 0.018, 0.002), rank_of(4, 0.018, 0.002)}};
  const ClusterProfile recomputing{{rank_of(8, 0.018, 0.003), rank_of(8, 0.018, 0.003)}};
  EXPECT_EQ(ranks_that_should_recompute(keeping, recomputing, configuration), (std::vector<bool>{true, true}));
}

TEST(DeviceListTest, groups_are_read) {
  const auto groups = parse_devices("64xA100-80GB, 3xV100");
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].count, 64);
  EXPECT_EQ(groups[0].name, "A100-80GB");
  EXPECT_EQ(groups[1].count, 3);
  for (const char* wrong :
       {"", "A100", "xA100", "0xA100", "4x", "4A100", "4xA100,", "-1xA100", "99999999999999999999xA100", "4 xA100"})
    EXPECT_THROW(parse_devices(wrong), UserError) << wrong;
}

TEST(DeviceListTest, a_list_has_a_bound_as_a_whole) {
  EXPECT_EQ(parse_devices("1048576xA").size(), 1U);
  EXPECT_THROW(parse_devices("1048576xA,1xA"), UserError);
}

TEST(DeviceListTest, names_are_found_however_they_are_written) {
  DeviceProfiles known;
  add_devices(known, profile_of({"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"}), "big card");
  add_devices(known, profile_of({"V100 16 GB", "P100 16 GB"}), "mixed");
  EXPECT_EQ(make_cluster(parse_devices("2xA100-SXM4-80GB,1xbig-card,3xv100-16gb"), known).ranks.size(), 6U);
  try {
    make_cluster(parse_devices("1xH100"), known);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no profile of \"H100\""));
    EXPECT_THAT(error.what(), HasSubstr("V100-16-GB"));
  }
  EXPECT_THROW(make_cluster(parse_devices("1xmixed"), known), UserError)
      << "a file of several kinds names none of them";
  EXPECT_THROW(make_cluster(parse_devices("1xH100"), {}), UserError);
}

std::string refusal(const std::string& devices, const DeviceProfiles& known) {
  try {
    make_cluster(parse_devices(devices), known);
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(DeviceListTest, files_with_different_profiles_of_a_device_are_named) {
  ClusterProfile slower = profile_of({"V100 16 GB"});
  slower.ranks.front().step_seconds = {{1, 0.02}, {64, 1.28}};
  DeviceProfiles known;
  add_devices(known, profile_of({"V100 16 GB", "P100 16 GB"}), "mixed");
  add_devices(known, slower, "big bert");
  EXPECT_THAT(refusal("3xV100-16GB", known),
              HasSubstr("different profiles of \"V100-16GB\" (mixed.json, big bert.json)"));
  EXPECT_THAT(refusal("3xV100-16GB", known), HasSubstr("as in --devices 3xbig-bert"));
  EXPECT_EQ(make_cluster(parse_devices("1xbig-bert"), known).ranks[0].step_seconds[0].seconds, 0.02);
  EXPECT_EQ(make_cluster(parse_devices("1xP100-16GB"), known).ranks.size(), 1U);
  add_devices(known, profile_of({"V100 16 GB"}), "V100-16GB");
  EXPECT_EQ(make_cluster(parse_devices("1xV100-16GB"), known).ranks[0].step_seconds[0].seconds, 0.01)
      << "a file's own name goes before a device's";
}

TEST(DeviceListTest, what_no_files_name_tells_apart_is_to_be_taken_out_of_the_folder) {
  ClusterProfile slower = profile_of({"V100", "P100"});
  slower.ranks.front().max_micro_batch = 8;
  DeviceProfiles known;
  add_devices(known, profile_of({"V100", "P100"}), "a");
  add_devices(known, slower, "b");
  EXPECT_THAT(refusal("1xV100", known), HasSubstr("(a.json, b.json): keep one of them in the folder"));
  EXPECT_EQ(refusal("1xP100", known), "none");
}

TEST(DeviceListTest, the_same_profile_in_several_files_is_one) {
  DeviceProfiles known;
  ClusterProfile elsewhere = profile_of({"V100", "V100"});
  elsewhere.ranks.front().host = "another";
  add_devices(known, profile_of({"V100"}), "a");
  add_devices(known, elsewhere, "b");
  EXPECT_EQ(refusal("2xV100,1xa,1xb", known), "none");
}

TEST(AllReduceModelTest, is_a_ring_for_much_and_a_tree_for_little) {
  const Network network{.ranks_per_node = 4,
                        .node_bytes_per_second = 1e9,
                        .bytes_per_second = 1e8,
                        .latency_seconds = 1e-3,
                        .node_latency_seconds = 0.0};
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e9, 1, network), 0.0);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e9, 4, network), 1.5);
  // Two nodes: a ring of two sends each half twice, one message each way.
  EXPECT_DOUBLE_EQ(all_reduce_seconds(1e9, 8, network), 1.5 + 10.0 + 2e-3);
  // 64 nodes and next to nothing to send: 12 messages of a tree, not 126 of a ring.
  EXPECT_NEAR(all_reduce_seconds(1.0, 256, network), 12e-3, 1e-6);
}

SweepRequest request() {
  DeviceProfiles known;
  add_devices(known, profile_of({"card"}), "card");
  const ClusterProfile cluster = make_cluster(parse_devices("4xcard"), known);
  SweepRequest request;
  request.devices = "4xcard";
  for (const RankProfile& rank : cluster.ranks)
    request.ranks.push_back({rank.device, CostTable(rank.step_seconds), 1, rank.max_micro_batch, std::nullopt, 0.0});
  request.dataset_size = 36000;
  request.prices = parse_prices("card=2");
  return request;
}

TEST(SweepTest, a_point_is_the_plan_and_what_it_costs) {
  const SweepPoint point = sweep_point(request(), 256);
  EXPECT_NEAR(point.step_seconds.value(), 0.64, 1e-12);
  EXPECT_NEAR(point.samples_per_second, 400.0, 1e-9);
  EXPECT_NEAR(point.efficiency, 1.0, 1e-9);
  EXPECT_NEAR(point.epoch_seconds, 90.0, 1e-9);
  EXPECT_NEAR(point.cost_per_epoch.value(), 4 * 2.0 * 90.0 / 3600.0, 1e-12);
  EXPECT_NEAR(sweep_point(request(), 6).efficiency, 0.75, 1e-9) << "six samples on four cards: two each on some";
}

TEST(SweepTest, an_epoch_is_without_the_batch_that_is_dropped) {
  SweepRequest dropping = request();
  dropping.last_batch = LastBatch::drop;
  const SweepPoint point = sweep_point(dropping, 256);
  EXPECT_NEAR(point.epoch_seconds, (36000 - 160) / 400.0, 1e-9);
  EXPECT_NEAR(point.cost_per_epoch.value(), 4 * 2.0 * 89.6 / 3600.0, 1e-12);
  dropping.dataset_size = 100;
  EXPECT_EQ(sweep_point(dropping, 256).epoch_seconds, 0.0) << "there is none";
  EXPECT_FALSE(sweep_point(dropping, 256).cost_per_epoch.has_value());
}

TEST(SweepTest, what_is_not_known_is_left_out) {
  SweepRequest unknown = request();
  unknown.prices = parse_prices("other=2");
  EXPECT_FALSE(sweep_point(unknown, 256).cost_per_epoch.has_value());
  unknown.options.gradient_accumulation_steps = 1;
  const SweepPoint none = sweep_point(unknown, 100000);
  EXPECT_FALSE(none.step_seconds.has_value());
  EXPECT_THAT(sweep_table({none}), HasSubstr("no plan: "));
  EXPECT_THAT(to_json({none}), HasSubstr("\"predicted_step_seconds\": null"));
}

TEST(SweepTest, prices_are_read) {
  EXPECT_EQ(parse_prices("A100-80GB=2.5,v100=0.9").at("a10080gb"), 2.5);
  EXPECT_TRUE(parse_prices("").empty());
  for (const char* wrong : {"a", "a=", "=1", "a=x", "a=1x", "a=-1", "a=nan"})
    EXPECT_THROW(parse_prices(wrong), UserError) << wrong;
}

TEST(PlannerTest, reduction_hides_behind_the_last_backward) {
  const std::vector<RankCost> ranks(2, RankCost{"d", CostTable({{1, 0.3}, {4, 1.2}}), 1, 4, std::nullopt, 0.0});
  PlannerOptions options;
  const double alone = plan_global_batch(8, ranks, options).predicted_step_seconds;
  options.overlapped_reduce_seconds = 0.5;
  EXPECT_DOUBLE_EQ(plan_global_batch(8, ranks, options).predicted_step_seconds, alone);
  options.overlapped_reduce_seconds = 1.0;
  EXPECT_NEAR(plan_global_batch(8, ranks, options).predicted_step_seconds, alone + 0.2, 1e-12);
}

TEST(PlannerTest, an_equal_split_takes_what_the_plan_says_of_it) {
  std::vector<RankCost> ranks(3, RankCost{"d", CostTable({{1, 0.1}, {8, 0.8}}), 1, 8, std::nullopt, 0.0});
  ranks[2].table = CostTable({{1, 0.2}, {8, 1.6}});
  const auto equal = plan_equal_split(64, ranks);
  ASSERT_TRUE(equal.has_value());
  EXPECT_NEAR(equal->predicted_step_seconds, plan_global_batch(64, ranks).equal_split_seconds.value(), 1e-12);
}

}  // namespace
}  // namespace onebatch
