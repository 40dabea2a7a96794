#include "trainer/settings/identity.hpp"

#include "trainer/run/built_in_kinds.hpp"
#include "trainer/settings/keys.hpp"

#include <gmock/gmock.h>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class IdentityTest : public testing::Test {
 protected:
  void SetUp() override { register_built_in_kinds(); }

  static Configuration with(const std::string& path, const ConfigValue& value) {
    Configuration configuration;
    set_key(configuration, path, value);
    return configuration;
  }
};

ConfigValue text(const char* word) {
  return {std::string(word)};
}

ConfigValue whole(std::int64_t number) {
  return {number};
}

TEST_F(IdentityTest, the_probes_answer_depends_on_what_takes_memory_or_time) {
  const std::string plain = identity_of_probe({});
  for (const auto& [path, value] : ConfigTable{{"batch.global_batch_size", whole(7)},
                                               {"batch.micro_batch_size", whole(7)},
                                               {"run.deterministic", {true}},
                                               {"data.kind", text("synthetic")},
                                               {"data.fraction", {0.5}},
                                               {"data.subset", text("good.txt")},
                                               {"data.augment.crop_padding", whole(4)},
                                               {"data.augment.horizontal_flip", {true}},
                                               {"model.hidden", {ConfigList{whole(3)}}},
                                               {"model.dropout", {0.5}},
                                               {"model.freeze", {ConfigList{text("fc.*")}}},
                                               {"loss.kind", text("mse")},
                                               {"loss.label_smoothing", {0.1}},
                                               {"optimizer.kind", text("sgd")},
                                               {"optimizer.max_grad_norm", {1.0}},
                                               {"precision.compute", text("bfloat16")},
                                               {"precision.master_weights", {false}},
                                               {"precision.channels_last", {true}},
                                               {"precision.cudnn_benchmark", {true}},
                                               {"memory.expandable_segments", {true}},
                                               {"memory.max_split_size_mb", whole(64)},
                                               {"memory.garbage_collection_threshold", {0.5}},
                                               {"batch_norm.mode", text("exact")},
                                               {"memory.recompute", whole(3)},
                                               {"probe.margin", {0.5}},
                                               {"probe.steps_per_trial", whole(5)},
                                               {"comm.backend", text("mpi")},
                                               {"comm.bucket_cap_mb", {1.0}},
                                               {"comm.overlap", {true}},
                                               {"comm.reduce_dtype", text("bfloat16")}})
    EXPECT_NE(identity_of_probe(with(path, value)), plain) << path;
}

TEST_F(IdentityTest, the_probes_answer_depends_on_nothing_else) {
  const std::string plain = identity_of_probe({});
  for (const auto& [path, value] : ConfigTable{{"run.name", text("another")},
                                               {"run.epochs", whole(3)},
                                               {"optimizer.lr", {0.5}},
                                               {"data.sampling", text("balanced")},
                                               {"data.sample_weights", text("w")},
                                               {"model.weights", text("w.safetensors")},
                                               {"model.reinitialize", {ConfigList{text("fc.*")}}},
                                               {"schedule.kind", text("cosine")},
                                               {"checkpoint.every_steps", whole(3)},
                                               {"log.every_steps", whole(3)},
                                               {"comm.timeout_seconds", {3.0}},
                                               {"probe.cache", {false}}})
    EXPECT_EQ(identity_of_probe(with(path, value)), plain) << path;
  EXPECT_EQ(identity_of_probe(with("optimizer.max_grad_norm", {1.0})),
            identity_of_probe(with("optimizer.max_grad_norm", {2.0})))
      << "whether there is a limit counts, not which";
}

TEST_F(IdentityTest, simulated_devices_count_as_they_are_when_they_are_measured) {
  Configuration configuration;
  configuration.simulate = {SimulatedDevice{}};
  const std::string plain = identity_of_probe(configuration);
  configuration.simulate[0].changes = {DeviceChange{.step = 3, .memory_bytes = {}, .slowdown = 2.0}};
  EXPECT_EQ(identity_of_probe(configuration), plain);
  configuration.simulate[0].step_seconds = {{1, 0.5}};
  EXPECT_NE(identity_of_probe(configuration), plain);
}

TEST_F(IdentityTest, a_run_is_known_by_its_seed_and_by_what_its_tensors_mean) {
  const auto identity = identity_of_run({});
  const std::map<std::string, std::string> expected = {{"run.seed", "1"},
                                                       {"model.kind", "mlp"},
                                                       {"model.hidden", "[512, 512]"},
                                                       {"model.dropout", "0.0"},
                                                       {"model.freeze", "[]"},
                                                       {"optimizer.kind", "adamw"},
                                                       {"precision.parameters", "float32"},
                                                       {"data.fraction", "1.0"},
                                                       {"data.sampling", "shuffle"},
                                                       {"data.validation.fraction", "0.0"}};
  EXPECT_EQ(identity, expected) << "of other kinds nothing";
  EXPECT_THAT(identity_differences(identity, identity), IsEmpty());
  EXPECT_THAT(identity_differences(identity, identity_of_run(with("optimizer.kind", text("sgd")))),
              HasSubstr("the checkpoint has optimizer.kind = adamw, not sgd"));
  EXPECT_THAT(identity_differences({}, identity), HasSubstr("the checkpoint has run.seed = none, not 1"));
}

TEST_F(IdentityTest, other_files_are_another_run_where_the_checkpoint_knows_them) {
  const std::map<std::string, std::string> now = {{k_data_digest, "b"}};
  EXPECT_THAT(identity_differences({{k_data_digest, "b"}}, now), IsEmpty());
  EXPECT_THAT(identity_differences({}, now), IsEmpty());
  EXPECT_THAT(identity_differences({{k_data_digest, "a"}}, now), HasSubstr("training data's digest = a, not b"));
  EXPECT_THAT(identity_differences({{"the training data's list of files", "b"}}, now), IsEmpty());
  EXPECT_THAT(identity_differences({{"the training data's list of files", "a"}}, now), HasSubstr("= a, not b"));
}

TEST_F(IdentityTest, older_checkpoints_are_understood) {
  const std::map<std::string, std::string> saved = {{"run.seed", "1"},           {"data.size", "1500"},
                                                    {"data.shape", "[1, 8, 8]"}, {"model.kind", "mlp"},
                                                    {"model.hidden", "[64]"},    {"model.dropout", "0.333333"},
                                                    {"optimizer.kind", "2"},     {"precision.parameters", "BFloat16"}};
  Configuration configuration;
  configuration.model.hidden = {64};
  configuration.model.dropout = 1.0 / 3.0;
  configuration.optimizer.kind = "sgd";
  configuration.precision.parameters = Precision::bfloat16;
  EXPECT_THAT(identity_differences(saved, identity_of_run(configuration)), IsEmpty());
  configuration.data.sampling.order = Sampling::balanced;
  EXPECT_THAT(identity_differences(saved, identity_of_run(configuration)),
              HasSubstr("the checkpoint has data.sampling = shuffle, not balanced"));
  configuration.model.freeze = {"layer0.*"};
  EXPECT_THAT(identity_differences(saved, identity_of_run(configuration)),
              HasSubstr("the checkpoint has model.freeze = [], not [\"layer0.*\"]"));
  configuration.optimizer.kind = "adam";
  configuration.model.dropout = 0.25;
  const std::string differences = identity_differences(saved, identity_of_run(configuration));
  EXPECT_THAT(differences, HasSubstr("the checkpoint has optimizer.kind = sgd, not adam"));
  EXPECT_THAT(differences, HasSubstr("the checkpoint has model.dropout = 0.333333, not 0.25"));
}

}  // namespace
}  // namespace onebatch
