#include "launch/config_loader.hpp"

#include "trainer/run/built_in_kinds.hpp"
#include "trainer/settings/keys.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace onebatch::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string k_good = R"(
[run]
epochs = 3
[batch]
global_batch_size = 257
[data]
kind = "idx"
path = "data/digits"
[data.validation]
[model]
kind = "mlp"
hidden = [32]
[simulate]
devices = [{memory = "512MiB", slowdown = 1.0}, {memory = "256MiB", slowdown = 2.5}]
)";

[[maybe_unused]] const bool k_kinds_are_known = [] {
  register_built_in_kinds();
  return true;
}();

std::string mistakes_of(const std::string& text, const std::vector<std::string>& assignments = {}, int ranks = 1) {
  const LoadedConfig loaded = load_config(text, "x.toml", assignments);
  auto mistakes = loaded.mistakes;
  for (auto& mistake : check_contradictions(loaded, "x.toml", ranks)) mistakes.push_back(mistake);
  return mistakes_text(mistakes);
}

TEST(ConfigLoaderTest, a_good_file_has_no_mistakes) {
  EXPECT_THAT(mistakes_of(k_good), IsEmpty());
  const Configuration c = load_config(k_good, "x.toml", {}).configuration;
  EXPECT_EQ(c.run.epochs, 3);
  EXPECT_EQ(c.batch.global_batch_size, 257);
  EXPECT_EQ(c.model.hidden, (std::vector<std::int64_t>{32}));
  ASSERT_EQ(c.simulate.size(), 2U);
  EXPECT_EQ(c.simulate[1].memory_bytes, std::int64_t{256} << 20);
  EXPECT_DOUBLE_EQ(c.simulate[1].slowdown, 2.5);
  ASSERT_TRUE(c.data.validation.has_value());
  EXPECT_EQ(c.data.validation->path, "data/digits") << "the validation set inherits";
}

TEST(ConfigLoaderTest, the_command_line_wins_over_the_files_other_way_to_say_it) {
  const LoadedConfig steps = load_config(k_good, "x.toml", {"run.max_steps=3"});
  EXPECT_THAT(mistakes_of(k_good, {"run.max_steps=3"}), IsEmpty());
  EXPECT_EQ(steps.configuration.run.max_steps, 3);
  EXPECT_FALSE(steps.configuration.run.epochs.has_value());
  EXPECT_THAT(resolved_config(steps), HasSubstr("# epochs is not set"));
  const LoadedConfig two = load_config(k_good, "x.toml", {"run.max_steps=3", "run.epochs=2"});
  EXPECT_EQ(two.configuration.run.max_steps, 3) << "whichever ends first";
  EXPECT_EQ(two.configuration.run.epochs, 2);
  const std::string both = std::string(k_good) + "[optimizer]\nmax_grad_norm = 1.0\n";
  EXPECT_EQ(load_config(both, "x.toml", {"optimizer.max_grad_value=0.5"}).configuration.optimizer.max_grad_norm,
            std::nullopt);
}

TEST(ConfigLoaderTest, workers_of_earlier_versions_may_be_none) {
  const LoadedConfig loaded = load_config(k_good, "x.toml", {"data.workers=0", "data.validation.workers=0"});
  EXPECT_THAT(mistakes_text(loaded.mistakes), IsEmpty());
  EXPECT_EQ(loaded.configuration.data.reading.workers, 0);
  EXPECT_THAT(mistakes_text(loaded.left_over), HasSubstr("--set data.validation.workers: there"));
}

TEST(ConfigLoaderTest, workers_that_there_are_not_are_a_mistake) {
  EXPECT_THAT(mistakes_of(k_good, {"data.validation.workers=1"}),
              HasSubstr("the thread that trains reads these samples; leave the key out"));
  for (const char* wrong : {"data.workers=-1", "data.workers=zero", "data.workers=1025"})
    EXPECT_THAT(mistakes_of(k_good, {wrong}), HasSubstr("write \"auto\" or a whole number from 0")) << wrong;
  EXPECT_EQ(load_config(k_good, "x.toml", {"data.workers=auto"}).configuration.data.reading.workers, std::nullopt);
}

TEST(ConfigLoaderTest, played_devices_may_have_times_of_their_own) {
  const auto with = [](const std::string& points) {
    return std::vector<std::string>{"simulate.devices=[{slowdown = 2.0, step_seconds = " + points + "}]"};
  };
  const LoadedConfig loaded = load_config(k_good, "x.toml", with("[[64, 0.1], [1, 0.004], [8, 0.003]]"));
  EXPECT_THAT(loaded.mistakes, IsEmpty());
  const std::vector<TimedSize>& points = loaded.configuration.simulate.at(0).step_seconds;
  ASSERT_EQ(points.size(), 3U);
  EXPECT_EQ(points[1].size, 8) << "in the order of sizes";
  EXPECT_DOUBLE_EQ(points[1].seconds, 0.004) << "more samples never take less time";
  const LoadedConfig again = load_config(resolved_config(loaded), "y.toml", {});
  EXPECT_EQ(again.configuration.simulate.at(0).step_seconds.size(), 3U);
  EXPECT_DOUBLE_EQ(again.configuration.simulate.at(0).step_seconds[2].seconds, 0.1);
  for (const char* points_text : {"0.1", "[0.1]", "[[1]]", "[[1.5, 0.1]]", "[[1, true]]"})
    EXPECT_THAT(mistakes_of(k_good, with(points_text)), HasSubstr("write step_seconds = [[1, 0.004], [64, 0.1]]"))
        << points_text;
  EXPECT_THAT(mistakes_of(k_good, with("[]")), HasSubstr("is empty"));
  EXPECT_THAT(mistakes_of(k_good, with("[[0, 0.1]]")), HasSubstr("sizes begin at 1"));
  EXPECT_THAT(mistakes_of(k_good, with("[[1, 0.1], [1, 0.2]]")), HasSubstr("the size 1 twice"));
  EXPECT_THAT(mistakes_of(k_good, with("[[1, -0.1]]")), HasSubstr("write seconds, 0 or more"));
}

TEST(ConfigLoaderTest, the_command_line_goes_over_the_file) {
  const LoadedConfig loaded = load_config(
      k_good, "x.toml", {"run.epochs=9", "optimizer.kind=sgd", "batch.micro_batch_size=[4, 5]", "run.name=two words"});
  EXPECT_THAT(loaded.mistakes, IsEmpty());
  EXPECT_EQ(loaded.configuration.run.epochs, 9);
  EXPECT_EQ(loaded.configuration.optimizer.kind, "sgd") << "a bare word is a text";
  EXPECT_EQ(loaded.configuration.batch.micro_batch_size, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(loaded.origins.at("run.epochs"), "command line");
  EXPECT_EQ(loaded.origins.at("batch.global_batch_size"), "x.toml:5");
}

TEST(ConfigLoaderTest, all_mistakes_come_at_once_with_their_places) {
  const std::string text = "[run]\nepochs = \"three\"\nsed = 1\n[optimizer]\nlr = -1\n[modle]\nkind = \"mlp\"\n";
  const std::string said = mistakes_of(text);
  EXPECT_THAT(said, HasSubstr("x.toml:2:10: run.epochs: write"));
  EXPECT_THAT(said, HasSubstr("run.sed: no such key; did you mean run.seed?"));
  EXPECT_THAT(said, HasSubstr("x.toml:5:6: optimizer.lr: write a number from 0.0"));
  EXPECT_THAT(said, HasSubstr("modle: no such key; did you mean model?"));
  EXPECT_THAT(said, HasSubstr("batch.global_batch_size: is needed"));
}

TEST(ConfigLoaderTest, syntax_errors_have_a_place) {
  EXPECT_THAT(mistakes_of("[run]\nepochs = = 3\n"), HasSubstr("x.toml:2:"));
}

TEST(ConfigLoaderTest, what_is_not_there_is_said) {
  EXPECT_THAT(mistakes_of(k_good, {"model.kind=vit"}),
              HasSubstr("model.kind: write \"mlp\" or \"resnet\" or \"torchscript\" or \"exported\""));
  EXPECT_THAT(mistakes_of(k_good, {"memory.roundup_mb=20"}), HasSubstr("memory.roundup_mb: no such key"));
  EXPECT_THAT(mistakes_of(k_good + "[memory]\npinned = true\n"), HasSubstr("memory.pinned: no such key"));
}

TEST(ConfigLoaderTest, a_section_in_a_keys_place_is_said_with_a_key_that_takes_the_value) {
  EXPECT_EQ(mistakes_of(k_good, {"checkpoint.keep_best=accuracy"}),
            "--set checkpoint.keep_best: is a section: write a key of it, as checkpoint.keep_best.metric = "
            "\"accuracy\"\n");
  EXPECT_EQ(mistakes_of(k_good, {"run=3"}), "--set run: is a section: write a key of it, as run.seed = 3\n");
  EXPECT_EQ(mistakes_of("[[run]]\nepochs = 3\n" + k_good.substr(k_good.find("[batch]"))),
            "x.toml:1:1: run: is a section: write [run] in the place of [[run]]\n");
}

TEST(ConfigLoaderTest, a_key_that_is_wrong_is_not_missing_too) {
  for (const char* wrong : {"run.epochs=-1", "data.kind=3", "model.kind=5", "batch.global_batch_size=many"}) {
    const std::string said = mistakes_of(k_good, {wrong});
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  }
  const std::string images =
      mistakes_of(k_good, {"data.kind=image_folder", "data.image_size=32", "data.validation.fraction=0.1"});
  EXPECT_EQ(std::ranges::count(images, '\n'), 1) << images;
  const std::string text = "[run]\nepoch = 3\n" + k_good.substr(k_good.find("[batch]"));
  EXPECT_EQ(mistakes_of(text), "x.toml:2:9: run.epoch: no such key; did you mean run.epochs?\n");
}

TEST(ConfigLoaderTest, precisions_that_do_not_go_together_are_said) {
  EXPECT_THAT(mistakes_of(k_good, {"precision.compute=float16"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"precision.compute=float16", "precision.parameters=bfloat16"}),
              HasSubstr("must be the same"));
  EXPECT_THAT(mistakes_of(k_good, {"precision.master_weights=false"}), HasSubstr("belongs to precision.parameters"));
  EXPECT_THAT(mistakes_of(k_good, {"precision.loss_scale=1024"}), HasSubstr("belongs to \"float16\""));
  EXPECT_THAT(mistakes_of(k_good, {"precision.compute=float16", "precision.loss_scale=big"}),
              HasSubstr("a number above 0"));
  EXPECT_THAT(mistakes_of(k_good, {"precision.compute=float16", "precision.loss_scale=1024"}), IsEmpty());
}

TEST(ConfigLoaderTest, timed_algorithms_do_not_go_with_deterministic_ones) {
  EXPECT_THAT(mistakes_of(k_good, {"precision.cudnn_benchmark=true"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"precision.cudnn_benchmark=true", "run.deterministic=true"}),
              HasSubstr("precision.cudnn_benchmark: stands beside run.deterministic"));
}

TEST(ConfigLoaderTest, the_order_of_images_is_on_off_or_left_to_the_run) {
  for (const char* value : {"true", "false", "auto"})
    EXPECT_THAT(mistakes_of(k_good, {std::string("precision.channels_last=") + value}), IsEmpty()) << value;
  EXPECT_THAT(mistakes_of(k_good, {"precision.channels_last=3"}), HasSubstr("\"auto\", true or false"));
}

TEST(ConfigLoaderTest, the_allocators_options_are_in_its_ranges) {
  EXPECT_THAT(mistakes_of(k_good, {"memory.max_split_size_mb=21", "memory.garbage_collection_threshold=0.99"}),
              IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"memory.max_split_size_mb=20"}), HasSubstr("from 21"));
  EXPECT_THAT(mistakes_of(k_good, {"memory.garbage_collection_threshold=1.0"}), HasSubstr("0.99"));
}

TEST(ConfigLoaderTest, bitwise_runs_need_a_grain) {
  EXPECT_THAT(mistakes_of(k_good, {"run.deterministic=bitwise"}), HasSubstr("needs batch.micro_batch_size = n"));
  EXPECT_THAT(mistakes_of(k_good, {"run.deterministic=bitwise", "batch.micro_batch_size=4"}), IsEmpty());
  EXPECT_THAT(
      mistakes_of(k_good, {"run.deterministic=bitwise", "batch.micro_batch_size=4", "comm.reduce_dtype=bfloat16"}),
      HasSubstr("exact sums"));
}

TEST(ConfigLoaderTest, groups_of_parameters_are_tables) {
  EXPECT_THAT(mistakes_of(k_good + "[[optimizer.groups]]\nmatch = \"*.bias\"\nweight_decay = 0\n", {}), IsEmpty());
  const std::string own_lr = "[[optimizer.groups]]\nmatch = \"*\"\nlr = 0.1\n";
  EXPECT_THAT(mistakes_of(k_good + own_lr, {"optimizer.lr=0.0"}), HasSubstr("write a rate above 0"));
  EXPECT_THAT(mistakes_of(k_good + own_lr, {"optimizer.lr=0.01"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.lr=0.0", "optimizer.groups=[{match = \"*\", lr = 0.0}]"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good + "[[optimizer.groups]]\nmatch = \"*.bias\"\n", {}),
              HasSubstr("a group needs match, and lr or weight_decay"));
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.groups=[{match = \"*\", momentum = 0.5}]"}),
              HasSubstr("not \"momentum\""));
  EXPECT_THAT(mistakes_of(k_good, {"data.augment.crop_padding=4", "data.augment.horizontal_flip=true"}), IsEmpty());
}

TEST(ConfigLoaderTest, told_programs_are_tables) {
  const std::string text = k_good + R"(
[[log.sinks]]
command = ["python3", "a b.py"]
[[log.sinks]]
command = ["cat"]
events = ["step", "ended"]
)";
  const LoadedConfig loaded = load_config(text, "x.toml", {});
  EXPECT_THAT(loaded.mistakes, IsEmpty()) << mistakes_text(loaded.mistakes);
  const std::vector<LogSink>& sinks = loaded.configuration.log.sinks;
  ASSERT_EQ(sinks.size(), 2U);
  EXPECT_EQ(sinks[0].command, (std::vector<std::string>{"python3", "a b.py"}));
  EXPECT_EQ(sinks[1].events, (std::vector<std::string>{"step", "ended"}));
  const LoadedConfig again = load_config(resolved_config(loaded), "r.toml", {});
  EXPECT_EQ(again.configuration.log.sinks.at(1).events, sinks[1].events);
  EXPECT_EQ(again.configuration.log.sinks.at(0).command, sinks[0].command);
  EXPECT_THAT(mistakes_of(k_good, {"log.sinks={command = [\"cat\"]}"}), HasSubstr("write [[log.sinks]] above each"));
  EXPECT_THAT(mistakes_of(k_good, {"log.sinks=[{command = [\"\"]}]"}), HasSubstr("write command = "));
}

TEST(ConfigLoaderTest, data_in_a_file_needs_it) {
  EXPECT_THAT(mistakes_of(k_good, {"data.kind=safetensors", "data.path="}),
              HasSubstr("is needed for data.kind = \"safetensors\""));
  EXPECT_THAT(mistakes_of(k_good, {"data.inputs=[\"x\"]"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"data.inputs=[\"ids\"]"}), HasSubstr("belongs to data.kind = \"safetensors\""));
  EXPECT_THAT(mistakes_of(k_good, {"data.inputs=ids"}), HasSubstr("a list of names"));
  EXPECT_THAT(mistakes_of(k_good, {"loss.kind=model"}), HasSubstr("belongs to model.kind = \"torchscript\""));
}

TEST(ConfigLoaderTest, validation_data_are_checked_by_their_kind) {
  const std::vector<std::string> images = {"data.kind=image_folder", "data.image_size=[224, 224]",
                                           "data.validation.path=photos/val"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), images.begin(), images.end());
    return mistakes_of(k_good, more);
  };
  EXPECT_THAT(with({}), IsEmpty());
  EXPECT_EQ(with({"data.validation.resize=200"}),
            "--set: data.validation.resize: cuts [224, 224] out of fewer pixels: write 224 or more\n");
  EXPECT_THAT(with({"data.validation.image_size=[32]"}), HasSubstr("data.validation.image_size: is needed for images"));
  const std::string tokens = mistakes_of(k_good, {"data.validation.kind=tokens"});
  EXPECT_THAT(tokens, HasSubstr("x.toml: data.validation.block_size: is needed for data.kind = \"tokens\""));
  EXPECT_THAT(mistakes_of(k_good, {"data.validation.kind=tokens", "data.validation.block_size=4"}), IsEmpty());
}

TEST(ConfigLoaderTest, what_validation_data_inherit_is_said_once) {
  const std::string both = mistakes_of(k_good, {"data.kind=tokens", "data.validation.path=held.bin"});
  EXPECT_EQ(both, "x.toml: data.block_size: is needed for data.kind = \"tokens\": how many tokens a sample has\n");
  EXPECT_THAT(mistakes_of(k_good, {"data.validation.fraction=0.1", "data.kind=image_folder"}),
              Not(HasSubstr("data.validation")));
}

TEST(ConfigLoaderTest, validation_keys_of_other_kinds_are_refused_where_they_were_given) {
  EXPECT_THAT(mistakes_of(k_good, {"data.validation.resize=200"}),
              HasSubstr("data.validation.resize: belongs to data.validation.kind = \"image_folder\" or \"tar\""));
  const std::vector<std::string> mixed = {"data.kind=safetensors", "data.inputs=[\"ids\"]", "data.validation.kind=idx"};
  EXPECT_THAT(mistakes_of(k_good, mixed), IsEmpty()) << "inherited";
  EXPECT_THAT(mistakes_of(resolved_config(load_config(k_good, "x.toml", mixed))), IsEmpty());
}

TEST(ConfigLoaderTest, what_changes_a_crop_or_random_changes_needs_them) {
  const auto with = [](std::vector<std::string> more) {
    for (const char* one : {"data.kind=image_folder", "data.image_size=[8, 8]", "data.validation.path=photos/val"})
      more.emplace_back(one);
    return mistakes_of(k_good, more);
  };
  for (const std::string key : {"crop_scale", "crop_ratio"}) {
    const std::string given = "data.augment." + key + "=[0.5, 1.0]";
    EXPECT_THAT(with({given}), HasSubstr(key + ": belongs to data.augment.random_resized_crop = true")) << key;
    EXPECT_THAT(with({given, "data.augment.random_resized_crop=true"}), IsEmpty()) << key;
  }
  EXPECT_THAT(with({"data.augment.rand_augment_magnitude=5"}), HasSubstr("belongs to data.augment.rand_augment_ops"));
  EXPECT_THAT(with({"data.augment.rand_augment_magnitude=5", "data.augment.rand_augment_ops=2"}), IsEmpty());
}

TEST(ConfigLoaderTest, recomputation_is_off_automatic_or_a_number_of_segments) {
  EXPECT_THAT(mistakes_of(k_good, {"memory.recompute=auto"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"memory.recompute=4"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"memory.recompute=4", "batch_norm.mode=exact"}), HasSubstr("leave the number out"));
  EXPECT_THAT(mistakes_of(k_good, {"memory.recompute=auto", "batch_norm.mode=sync"}), HasSubstr("does not go with"));
  EXPECT_THAT(mistakes_of(k_good, {"memory.recompute=1"}), HasSubstr("how many segments, from 2"));
}

TEST(ConfigLoaderTest, batch_norm_has_one_mode) {
  EXPECT_THAT(mistakes_of(k_good, {"batch_norm.mode=exact"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"batch_norm.sync_batchnorm=true"}), IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {"batch_norm.mode=exact", "batch_norm.frozen=true"}),
              HasSubstr("leave one of the two out"));
  EXPECT_THAT(mistakes_of(k_good, {"batch_norm.mode=global"}), HasSubstr("\"exact\""));
}

TEST(ConfigLoaderTest, of_two_keys_for_synchronised_batch_norm_the_command_lines_counts) {
  const std::string resolved = std::string(k_good) + "[batch_norm]\nmode = \"sync\"\nsync_batchnorm = true\n";
  const auto mode_with = [&](const std::string& setting) {
    const LoadedConfig loaded = load_config(resolved, "x.toml", {setting});
    EXPECT_THAT(mistakes_text(loaded.mistakes), IsEmpty());
    return loaded.configuration.batch_norm.mode;
  };
  EXPECT_EQ(mode_with("run.seed=1"), BatchNormMode::sync);
  EXPECT_EQ(mode_with("batch_norm.mode=exact"), BatchNormMode::exact);
  EXPECT_EQ(mode_with("batch_norm.sync_batchnorm=false"), BatchNormMode::local);
  EXPECT_EQ(load_config(std::string(k_good) + "[batch_norm]\nmode = \"exact\"\n", "x.toml",
                        {"batch_norm.sync_batchnorm=false"})
                .configuration.batch_norm.mode,
            BatchNormMode::exact);
  EXPECT_THAT(mistakes_of(std::string(k_good) + "[batch_norm]\nmode = \"exact\"\nsync_batchnorm = true\n"),
              HasSubstr("contradict each other: leave sync_batchnorm out"));
}

TEST(ConfigLoaderTest, of_steps_and_epochs_that_a_file_has_both_the_command_line_takes_none_away) {
  std::string both = k_good;
  both.replace(both.find("epochs = 3"), 10, "epochs = 3\nmax_steps = 9");
  EXPECT_THAT(mistakes_of(both), IsEmpty());
  const LoadedConfig loaded = load_config(both, "x.toml", {"run.max_steps=5"});
  EXPECT_EQ(loaded.configuration.run.max_steps, 5);
  EXPECT_EQ(loaded.configuration.run.epochs, 3);
}

TEST(ConfigLoaderTest, a_watched_metric_is_a_table_of_its_own_or_one_in_a_line) {
  const std::string inline_table =
      std::string(k_good) + "[checkpoint]\nkeep_best = {metric = \"accuracy\", mode = \"max\"}\n";
  const LoadedConfig loaded =
      load_config(inline_table, "x.toml", {"run.early_stopping.metric=loss", "run.early_stopping.patience=2"});
  EXPECT_THAT(mistakes_text(loaded.mistakes), IsEmpty());
  const Configuration& c = loaded.configuration;
  EXPECT_EQ(c.checkpoint.keep_best.metric, "accuracy");
  EXPECT_EQ(c.checkpoint.keep_best.better, BetterIs::greatest);
  EXPECT_EQ(c.run.early_stopping.watched.metric, "loss");
  EXPECT_EQ(c.run.early_stopping.watched.better, BetterIs::automatic);
  EXPECT_EQ(c.run.early_stopping.patience, 2);
  const LoadedConfig again = load_config(resolved_config(loaded), "y.toml", {});
  EXPECT_THAT(mistakes_text(again.mistakes), IsEmpty());
  EXPECT_EQ(again.configuration.checkpoint.keep_best.metric, "accuracy");
  EXPECT_EQ(again.configuration.run.early_stopping.patience, 2);
  EXPECT_THAT(
      check_contradictions(load_config(resolved_config(load_config(k_good, "x.toml", {})), "y.toml", {}), "y", 1),
      IsEmpty())
      << "what is not set is none";
}

TEST(ConfigLoaderTest, what_is_watched_needs_a_metric_and_validation_data) {
  EXPECT_THAT(mistakes_of(k_good, {"checkpoint.keep_best.mode=max"}),
              HasSubstr("belongs to checkpoint.keep_best.metric"));
  EXPECT_THAT(mistakes_of(k_good, {"run.early_stopping.patience=3"}),
              HasSubstr("belongs to run.early_stopping.metric"));
  EXPECT_THAT(mistakes_of(k_good, {"run.early_stopping.patience=0"}), HasSubstr("write a whole number from 1"));
  EXPECT_THAT(mistakes_of(k_good, {"checkpoint.keep_best.mode=more"}), HasSubstr("\"auto\" or \"min\" or \"max\""));
  std::string blind = k_good;
  blind.replace(blind.find("[data.validation]\n"), 18, "");
  for (const char* key : {"run.val_first=true", "run.validate_every_steps=5", "run.early_stopping.metric=loss",
                          "checkpoint.keep_best.metric=loss"}) {
    EXPECT_THAT(mistakes_of(blind, {key}), HasSubstr("needs validation data")) << key;
    EXPECT_THAT(mistakes_of(k_good, {key}), IsEmpty()) << key;
  }
}

TEST(ConfigLoaderTest, a_decay_is_below_one) {
  for (const char* wrong : {"optimizer.ema_decay=1.0", "optimizer.ema_decay=1", "optimizer.ema_decay=-0.1"})
    EXPECT_THAT(mistakes_of(k_good, {wrong}), HasSubstr("to below 1.0")) << wrong;
  EXPECT_EQ(load_config(k_good, "x.toml", {"optimizer.ema_decay=0.999"}).configuration.optimizer.ema_decay, 0.999);
}

TEST(ConfigLoaderTest, contradictions_are_named) {
  EXPECT_THAT(mistakes_of(k_good, {"schedule.warmup_steps=4", "schedule.warmup_fraction=0.1"}),
              HasSubstr("schedule.warmup_fraction: stands beside schedule.warmup_steps: write one way"));
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.lr_batch_size=128"}), HasSubstr("belongs to optimizer.lr_scaling"));
  EXPECT_THAT(mistakes_of(k_good, {"batch.micro_batch_size=[4,5,6]"}, 2), HasSubstr("lists 3 sizes, but 2 rank(s)"));
  EXPECT_THAT(mistakes_of(k_good, {"batch.micro_batch_size=16", "batch.gradient_accumulation_steps=4"}, 2),
              HasSubstr("is 128"));
  EXPECT_THAT(
      mistakes_of(k_good,
                  {"batch.micro_batch_size=16", "batch.gradient_accumulation_steps=4", "batch.global_batch_size=128"},
                  2),
      IsEmpty());
  EXPECT_THAT(mistakes_of(k_good, {}, 3), HasSubstr("mpirun -np 2"));
  EXPECT_THAT(mistakes_of(k_good, {"run.device=cuda"}), HasSubstr("simulate.devices"));
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.momentum=0.9"}), HasSubstr("belongs to optimizer.kind = \"sgd\""));
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.kind=sgd", "optimizer.nesterov=true"}),
              HasSubstr("needs optimizer.momentum"));
  EXPECT_THAT(mistakes_of(k_good, {"optimizer.kind=sgd", "optimizer.betas=[0.9,0.99]"}), HasSubstr("belongs to"));
  EXPECT_THAT(mistakes_of(k_good, {"model.depth=20"}), HasSubstr("belongs to model.kind = \"resnet\""));
  EXPECT_THAT(mistakes_of(k_good, {"model.kind=torchscript"}), HasSubstr("model.path: is needed"));
  EXPECT_THAT(mistakes_of(k_good, {"model.path=x.pt"}),
              HasSubstr("belongs to model.kind = \"exported\" or \"plugin\" or \"torchscript\""));
  EXPECT_THAT(mistakes_of(k_good, {"schedule.kind=step"}), HasSubstr("schedule.step_size"));
  EXPECT_THAT(mistakes_of(k_good, {"precision.compute=float64"}), HasSubstr("must be the same"));
}

TEST(ConfigLoaderTest, every_key_refuses_another_type) {
  for (const Key& key : configuration_keys()) {
    EXPECT_THAT(mistakes_of(k_good, {key.path + "={a = 1}"}), HasSubstr(key.path)) << "a table is no value of any key";
  }
}

// What the resolved file says, read again, is the same configuration.
TEST(ConfigLoaderTest, the_resolved_file_reads_back_to_itself) {
  const LoadedConfig loaded =
      load_config(k_good, "x.toml",
                  {"optimizer.max_grad_norm=0.5", "loss.class_weights=[1, 2.5]", "checkpoint.resume=runs/a/step-3"});
  const std::string resolved = resolved_config(loaded);
  EXPECT_THAT(resolved, HasSubstr("global_batch_size = 257   # x.toml:5"));
  EXPECT_THAT(resolved, HasSubstr("seed = 1   # default"));
  const LoadedConfig again = load_config(resolved, "r.toml", {});
  EXPECT_THAT(again.mistakes, IsEmpty()) << mistakes_text(again.mistakes);
  for (const Key& key : configuration_keys())
    EXPECT_EQ(key.show(again.configuration), key.show(loaded.configuration)) << key.path;
}

TEST(ConfigLoaderTest, texts_and_sizes_of_every_kind_read_back) {
  const std::string text = R"(
[run]
name = "a\"b\\c\nd\te\u007f"
[batch]
global_batch_size = 7
[simulate]
devices = [{memory = 9007199254740993}, {memory = "1.5KiB"}, {memory = "8589934591GiB"}]
)";
  const LoadedConfig loaded = load_config(text, "x.toml", {});
  ASSERT_THAT(loaded.mistakes, IsEmpty()) << mistakes_text(loaded.mistakes);
  const LoadedConfig again = load_config(resolved_config(loaded), "r.toml", {});
  ASSERT_THAT(again.mistakes, IsEmpty()) << mistakes_text(again.mistakes);
  EXPECT_EQ(again.configuration.run.name, "a\"b\\c\nd\te\x7f");
  ASSERT_EQ(again.configuration.simulate.size(), 3U);
  EXPECT_EQ(again.configuration.simulate[0].memory_bytes, 9007199254740993);
  EXPECT_EQ(again.configuration.simulate[1].memory_bytes, 1536);
  EXPECT_EQ(again.configuration.simulate[2].memory_bytes, 8589934591 << 30);
}

TEST(ConfigLoaderTest, sizes_that_no_memory_has_are_refused) {
  for (const char* size : {"0", "0.5B", "8589934592GiB", "1e15GiB", "1e999", "nan", "inf", "-1MiB", "1 TiB"}) {
    const auto said = mistakes_of(k_good, {std::string("simulate.devices=[{memory = \"") + size + "\"}]"});
    EXPECT_THAT(said, HasSubstr("memory must be a size such as")) << size;
  }
}

TEST(ConfigLoaderTest, showing_a_configuration_makes_no_validation_set) {
  std::string without = k_good;
  without.erase(without.find("[data.validation]\n"), std::string("[data.validation]\n").size());
  const LoadedConfig loaded = load_config(without, "x.toml", {});
  for (const Key& key : configuration_keys()) {
    if (!key.path.starts_with("data.validation.")) continue;
    // How much of the training data validates is always a number: a checkpoint is compared by it.
    EXPECT_EQ(key.show(loaded.configuration), key.path == "data.validation.fraction" ? "0.0" : "") << key.path;
  }
  EXPECT_FALSE(loaded.configuration.data.validation.has_value());
  EXPECT_THAT(resolved_config(loaded), Not(HasSubstr("data.validation")));
  EXPECT_THAT(resolved_config(load_config(k_good, "x.toml", {})),
              HasSubstr("[data.validation]\nkind = \"idx\"   # as data"));
}

TEST(ConfigLoaderTest, a_depth_belongs_to_its_stem) {
  const auto said = [](const std::string& depth, const std::string& stem) {
    return mistakes_of(k_good,
                       {"model.kind=resnet", "model.hidden=[512, 512]", "model.depth=" + depth, "model.stem=" + stem});
  };
  for (const char* depth : {"8", "18", "20", "50"}) EXPECT_THAT(said(depth, "cifar"), IsEmpty()) << depth;
  EXPECT_THAT(said("18", "imagenet"), IsEmpty());
  EXPECT_THAT(said("50", "imagenet"), HasSubstr("model.depth: with model.stem = \"imagenet\" write 18"));
  EXPECT_THAT(said("20", "imagenet"), HasSubstr("needs model.stem = \"cifar\""));
  EXPECT_THAT(said("101", "imagenet"), HasSubstr("write 18"));
  EXPECT_THAT(said("34", "cifar"), HasSubstr("6n + 2"));
}

TEST(ConfigLoaderTest, bad_assignments_are_mistakes) {
  for (const char* assignment : {"", "=", "=3", "run.epochs", "run epochs=3", "[run]=3", "run..epochs=3", ".=1"}) {
    EXPECT_FALSE(load_config(k_good, "x.toml", {assignment}).mistakes.empty()) << assignment;
  }
}

TEST(ConfigLoaderTest, damaged_files_never_crash) {
  std::mt19937 generator(2);
  for (std::size_t length = 0; length < k_good.size(); ++length) mistakes_of(k_good.substr(0, length));
  for (int i = 0; i < 3000; ++i) {
    std::string text = k_good;
    for (int flips = 0; flips < 4; ++flips) text[generator() % text.size()] = static_cast<char>(generator() % 256);
    mistakes_of(text);
  }
  EXPECT_THAT(mistakes_of(std::string(2 << 20, 'a')), HasSubstr("larger than 1 MiB"));
}

}  // namespace
}  // namespace onebatch::launch
