#include "trainer/models/start_weights.hpp"

#include "../unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/layer_calls.hpp"
#include "trainer/models/weights_file.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>

namespace onebatch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScratchFolder;

at::Tensor parameter(at::IntArrayRef sizes) {
  return at::full(sizes, 7.0).requires_grad_();
}

// Tensors of a model whose weights come with its file, and what reads them.
class FromFile : public Model {
 public:
  std::vector<NamedTensor> named;
  std::vector<NamedTensor> kept;
  std::vector<std::string> statistics;
  std::vector<LayerCall> calls;

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const ForwardContext& /*context*/) override {
    return inputs;
  }
  std::vector<NamedTensor> parameters() const override { return named; }
  std::vector<NamedTensor> buffers() const override { return kept; }
  std::optional<std::vector<LayerCall>> layer_calls() const override { return calls; }
  void set_phase(Phase /*phase*/) override {}
  void move_to(c10::Device /*device*/, at::ScalarType /*type*/, at::ScalarType /*norms*/) override {}
  std::vector<std::string> batch_norm_layers() const override { return {}; }
  std::vector<std::string> running_statistics() const override { return statistics; }
};

class LinearAndHead final : public FromFile {
 public:
  LinearAndHead() {
    named = {{"bert.fc.weight", parameter({4, 9})},
             {"bert.fc.bias", parameter({4})},
             {"head.weight", parameter({2, 4})},
             {"head.bias", parameter({2})}};
    calls = {{.name = "aten::linear", .reads = {{"weight", named[0].tensor}, {"bias", named[1].tensor}}},
             {.name = "aten::linear", .reads = {{"weight", named[2].tensor}, {"bias", named[3].tensor}}}};
  }
};

class StartWeightsTest : public ::testing::Test {
 protected:
  std::string refusal(Model& model) const {
    try {
      start_weights(model, configuration_, 1);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }

  void save(const std::vector<NamedTensor>& tensors) {
    configuration_.weights = (folder_ / "w.safetensors").string();
    save_tensors(configuration_.weights, tensors);
  }

  ScratchFolder folder_;
  ModelConfiguration configuration_;
};

TEST_F(StartWeightsTest, names_differ_by_a_prefix_on_either_side) {
  for (const std::string in_file : {"module.bert.", "fc."}) {
    LinearAndHead model;
    model.named.resize(2);
    const std::string own = in_file == "fc." ? "fc." : in_file + "fc.";
    configuration_.weights_prefix = in_file == "fc." ? "bert." : "module.";
    std::vector<NamedTensor> saved = {{own + "weight", at::full({4, 9}, 2.0)}, {own + "bias", at::full({4}, 3.0)}};
    if (in_file != "fc.") saved.push_back({"step", at::zeros({1})});  // lacks the prefix: left out
    save(saved);
    start_weights(model, configuration_, 1);
    EXPECT_TRUE(model.named[0].tensor.eq(2.0).all().item<bool>()) << in_file;
    EXPECT_TRUE(model.named[1].tensor.eq(3.0).all().item<bool>()) << in_file;
  }
}

TEST_F(StartWeightsTest, a_prefix_of_both_sides_leaves_out_what_lacks_it) {
  LinearAndHead model;
  configuration_.weights_prefix = "bert.";
  save({{"bert.fc.weight", at::full({4, 9}, 2.0)}, {"bert.fc.bias", at::full({4}, 3.0)}, {"cls.bias", at::zeros({3})}});
  const std::string said = refusal(model);
  EXPECT_THAT(said, HasSubstr("head.weight [2, 4] is missing"));
  EXPECT_THAT(said, HasSubstr("left out, since they lack the prefix: cls.bias"));
  EXPECT_THAT(said, HasSubstr("write model.reinitialize = [\"head.*\"]"));
  configuration_.reinitialize = {"head.*"};
  EXPECT_EQ(refusal(model), "accepted");
  EXPECT_TRUE(model.named[0].tensor.eq(2.0).all().item<bool>());
  EXPECT_LE(model.named[2].tensor.abs().max().item<double>(), 1 / std::sqrt(4.0));
}

TEST_F(StartWeightsTest, what_begins_anew_may_be_in_the_file_in_any_shape) {
  LinearAndHead model;
  configuration_.reinitialize = {"head.*"};
  save({{"bert.fc.weight", at::full({4, 9}, 2.0)},
        {"bert.fc.bias", at::full({4}, 3.0)},
        {"head.weight", at::zeros({1000, 4})},
        {"head.2.weight", at::zeros({3})}});
  EXPECT_EQ(refusal(model), "accepted");
  EXPECT_TRUE(model.named[1].tensor.eq(3.0).all().item<bool>());
  EXPECT_GT(model.named[2].tensor.abs().max().item<double>(), 0.0);
}

TEST_F(StartWeightsTest, ten_of_each_are_named_and_the_others_counted) {
  FromFile model;
  std::vector<NamedTensor> saved;
  for (int i = 0; i < 12; ++i) {
    model.named.push_back({"m" + std::to_string(i) + ".w", parameter({1})});
    saved.push_back({"f" + std::to_string(i) + ".w", at::zeros({1})});
  }
  save(saved);
  const std::string said = refusal(model);
  EXPECT_THAT(said, HasSubstr("m9.w [1] is missing\n  and 2 more are missing"));
  EXPECT_THAT(said, Not(HasSubstr("m10.w")));
  EXPECT_THAT(said, HasSubstr("and 2 more are not in the model"));
  EXPECT_THAT(said, HasSubstr("name them in model.reinitialize"));
}

TEST_F(StartWeightsTest, a_prefix_that_would_help_is_named) {
  LinearAndHead model;
  save({{"fc.weight", at::zeros({4, 9})}, {"fc.bias", at::zeros({4})}});
  EXPECT_THAT(refusal(model), HasSubstr("write model.weights_prefix = \"bert.\""));
  configuration_.weights_prefix = "gpt.";
  EXPECT_THAT(refusal(model), HasSubstr("model.weights_prefix = \"gpt.\": no name begins with it"));
}

TEST_F(StartWeightsTest, a_prefix_with_which_no_shape_fits_is_not_named) {
  LinearAndHead model;
  save({{"fc.weight", at::zeros({7, 7})}, {"fc.bias", at::zeros({7})}});
  EXPECT_THAT(refusal(model), Not(HasSubstr("write model.weights_prefix = \"")));
}

TEST_F(StartWeightsTest, float64_of_the_file_is_kept) {
  LinearAndHead model;
  model.named.resize(1);
  save({{"bert.fc.weight", at::full({4, 9}, 0.1, at::kDouble)}});
  start_weights(model, configuration_, 1);
  EXPECT_EQ(model.named[0].tensor[0][0].item<double>(), 0.1);
  EXPECT_TRUE(model.named[0].tensor.requires_grad());
}

TEST_F(StartWeightsTest, what_16_bits_do_not_hold_is_kept) {
  LinearAndHead model;
  model.named.resize(1);
  model.named[0].tensor = at::zeros({4, 9}, at::kBFloat16).requires_grad_();
  save({{"bert.fc.weight", at::full({4, 9}, 0.1, at::kFloat)}});
  start_weights(model, configuration_, 1);
  EXPECT_EQ(model.named[0].tensor[0][0].item<float>(), 0.1F);
}

TEST_F(StartWeightsTest, new_values_depend_on_seed_and_name_alone) {
  configuration_.reinitialize = {"*"};
  LinearAndHead first;
  start_weights(first, configuration_, 1);
  LinearAndHead alone;
  configuration_.reinitialize = {"head.weight"};
  start_weights(alone, configuration_, 1);
  EXPECT_TRUE(alone.named[2].tensor.equal(first.named[2].tensor));
  EXPECT_TRUE(alone.named[0].tensor.eq(7.0).all().item<bool>());
  LinearAndHead other;
  start_weights(other, configuration_, 2);
  EXPECT_FALSE(other.named[2].tensor.equal(first.named[2].tensor));
}

TEST_F(StartWeightsTest, norms_embeddings_and_statistics_begin_as_pytorchs) {
  FromFile model;
  model.named = {
      {"norm.weight", parameter({3})}, {"norm.bias", parameter({3})}, {"words.weight", parameter({400, 30})}};
  model.kept = {{"norm.running_mean", at::full({3}, 7.0)},
                {"norm.running_var", at::full({3}, 7.0)},
                {"norm.num_batches_tracked", at::full({}, 7, at::kLong)},
                {"positions", at::full({2}, 7.0)}};
  model.statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"};
  model.calls = {{.name = "aten::batch_norm",
                  .reads = {{"weight", model.named[0].tensor},
                            {"bias", model.named[1].tensor},
                            {"running_mean", model.kept[0].tensor},
                            {"running_var", model.kept[1].tensor}}},
                 {.name = "aten::embedding", .reads = {{"weight", model.named[2].tensor}}, .padding_index = 5}};
  configuration_.reinitialize = {"*"};
  start_weights(model, configuration_, 1);
  EXPECT_TRUE(model.named[0].tensor.eq(1.0).all().item<bool>());
  EXPECT_TRUE(model.named[1].tensor.eq(0.0).all().item<bool>());
  EXPECT_TRUE(model.kept[0].tensor.eq(0.0).all().item<bool>());
  EXPECT_TRUE(model.kept[1].tensor.eq(1.0).all().item<bool>());
  EXPECT_EQ(model.kept[2].tensor.item<std::int64_t>(), 0);
  EXPECT_TRUE(model.kept[3].tensor.eq(7.0).all().item<bool>()) << "no statistic";
  EXPECT_TRUE(model.named[2].tensor[5].eq(0.0).all().item<bool>()) << "padding";
  EXPECT_NEAR(model.named[2].tensor.detach().std().item<double>(), 1.0, 0.03);
}

TEST_F(StartWeightsTest, what_is_no_layer_is_named) {
  LinearAndHead model;
  model.calls[0].reads[0].transposed = true;
  model.calls[1].name = "aten::mul";
  model.calls.push_back({.name = "aten::embedding", .reads = {{"weight", model.named[3].tensor}}});
  model.calls.push_back(
      {.name = "aten::linear", .reads = {{"bias", model.named[3].tensor}, {"weight", model.named[2].tensor}}});
  configuration_.reinitialize = {"*"};
  const std::string said = refusal(model);
  EXPECT_THAT(said, HasSubstr("bert.fc.weight [4, 9]: it is read by aten::linear"));
  EXPECT_THAT(said, HasSubstr("bert.fc.bias [4]: it is read by aten::linear"));
  EXPECT_THAT(said, HasSubstr("head.bias [2]: it is of layers that begin it differently"));
  EXPECT_THAT(said, Not(HasSubstr("head.weight"))) << "one reader is enough";
}

TEST_F(StartWeightsTest, what_is_frozen_needs_no_gradient_and_something_is_left_to_train) {
  LinearAndHead model;
  configuration_.freeze = {"bert.*"};
  start_weights(model, configuration_, 1);
  EXPECT_FALSE(model.named[0].tensor.requires_grad());
  EXPECT_FALSE(model.named[1].tensor.requires_grad());
  EXPECT_TRUE(model.named[2].tensor.requires_grad());
  EXPECT_EQ(trained_part(model, configuration_),
            "2 of 4 parameters are trained, 10 of 50 numbers; the others are frozen");
  configuration_.freeze = {"bert.*", "head.?*"};
  EXPECT_THAT(refusal(model), HasSubstr("model.freeze leaves nothing to train"));
  configuration_.freeze = {"bert.*", "haed.*"};
  EXPECT_THAT(refusal(model), HasSubstr("model.freeze: no parameter has a name that \"haed.*\" matches"));
}

TEST_F(StartWeightsTest, a_model_that_makes_its_own_weights_has_its_new_ones_from_the_seed) {
  ModelRequest request;
  request.configuration.kind = "mlp";
  request.configuration.hidden = {5};
  request.sample_shape = {3};
  request.num_classes = 2;
  const auto plain = make_model(request);
  request.configuration.reinitialize = {"layer1.*"};
  EXPECT_THROW(make_model(request), UserError) << "without a file everything is new";
  save({{"layer0.weight", at::full({5, 3}, 2.0)}, {"layer0.bias", at::full({5}, 3.0)}});
  request.configuration.weights = configuration_.weights;
  const auto model = make_model(request);
  EXPECT_TRUE(model->parameters()[0].tensor.eq(2.0).all().item<bool>());
  EXPECT_TRUE(model->parameters()[2].tensor.equal(plain->parameters()[2].tensor));
}

}  // namespace
}  // namespace onebatch
