// Traces saved by oracle/make_traced.py: what they have written in is the run's again.
#include "trainer/models/script_graph.hpp"

#include "trainer/graph/watched_calls.hpp"
#include "trainer/models/torchscript.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <map>

namespace onebatch {
namespace {

const std::string k_file = std::string(ONEBATCH_TRACED) + "/constants.pt";

class ScriptGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(k_file)) GTEST_SKIP() << "no PyTorch in Python wrote " << k_file;
    model = load_torchscript({k_file, false, false});
  }

  // How often each operator is called in a forward, and which flags it is given.
  std::map<std::string, int> calls(Phase phase) {
    std::map<std::string, int> counts;
    model->set_phase(phase);
    watch_calls(
        [&](const c10::OperatorHandle& op, torch::jit::Stack* stack) {
          const auto& arguments = op.schema().arguments();
          const auto given = torch::jit::last(*stack, arguments.size());
          std::string flags;
          for (std::size_t i = 0; i < arguments.size(); ++i) {
            if (arguments[i].name() == "training" || arguments[i].name() == "train")
              flags = given[i].toBool() ? " in training" : " in evaluation";
          }
          ++counts[op.operator_name().name + flags];
          op.callBoxed(stack);
        },
        [&] {
          model->forward(at::randn({3, 2, 5, 5}), {1, 0, k_samples});
        });
    return counts;
  }

  static constexpr std::array<std::int64_t, 3> k_samples = {0, 1, 2};
  std::unique_ptr<Model> model;
};

TEST_F(ScriptGraphTest, flags_follow_the_phase) {
  auto training = calls(Phase::training);
  EXPECT_EQ(training["aten::batch_norm in training"], 1);
  EXPECT_EQ(training["aten::lstm in training"], 1);
  auto evaluation = calls(Phase::evaluation);
  EXPECT_EQ(evaluation["aten::batch_norm in evaluation"], 1);
  EXPECT_EQ(evaluation["aten::lstm in evaluation"], 1);
  EXPECT_EQ(evaluation["aten::batch_norm in training"] + evaluation["aten::lstm in training"], 0);
}

TEST_F(ScriptGraphTest, convolutions_have_no_switches_of_their_own) {
  auto counts = calls(Phase::training);
  EXPECT_EQ(counts["aten::_convolution"], 0) << "it would carry the day's allow_tf32";
  EXPECT_EQ(counts["aten::convolution"], 2);
}

// A tensor of another device would not go together with the meta device's.
TEST_F(ScriptGraphTest, everything_that_the_code_holds_or_makes_lies_on_the_models_device) {
  const std::string file = std::string(ONEBATCH_TRACED) + "/held.pt";
  torch::jit::Module module = torch::jit::load(file);
  for (torch::jit::Module part : module.modules()) {
    for (const auto& item : part.named_attributes(/*recurse=*/false)) {
      if (item.value.isTensor()) part.setattr(item.name, item.value.toTensor().detach().to(at::kMeta));
    }
  }
  module.eval();
  ScriptGraph(module, file, BatchNormUse::as_written).move_to(c10::Device(c10::kMeta), at::kFloat);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(module.forward({at::randn({3, 6}).to(at::kMeta)}).toTensor().is_meta());
}

TEST_F(ScriptGraphTest, everything_that_the_code_holds_or_makes_has_the_models_type) {
  const at::Tensor inputs = at::randn({3, 2, 5, 5}, at::kDouble);
  model->set_phase(Phase::evaluation);
  const at::Tensor single = model->forward(inputs.to(at::kFloat), {1, 0, k_samples});
  const auto other = load_torchscript({k_file, false, false});
  other->move_to(c10::Device(c10::kCPU), at::kDouble, at::kDouble);
  other->set_phase(Phase::evaluation);
  const at::Tensor outputs = other->forward(inputs, {1, 0, k_samples});
  EXPECT_EQ(outputs.scalar_type(), at::kDouble);
  EXPECT_TRUE(outputs.allclose(single.to(at::kDouble), 1e-4, 1e-5));
}

TEST_F(ScriptGraphTest, validation_leaves_parameters_and_buffers_their_bits) {
  const auto state = [&] {
    std::vector<at::Tensor> copies;
    for (const auto& [name, tensor] : model->state_dict()) copies.push_back(tensor.detach().clone());
    return copies;
  };
  const auto before = state();
  calls(Phase::evaluation);
  const auto after = state();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].equal(after[i])) << model->state_dict()[i].name;
  calls(Phase::training);
  bool changed = false;
  const auto trained = state();
  for (std::size_t i = 0; i < before.size(); ++i) changed |= !before[i].equal(trained[i]);
  EXPECT_TRUE(changed) << "training moves the running statistics";
}

TEST_F(ScriptGraphTest, the_layers_that_normalise_over_the_batch_are_named) {
  EXPECT_EQ(model->batch_norm_layers(), std::vector<std::string>{"norm"});
  EXPECT_TRUE(load_torchscript({k_file, true, false})->batch_norm_layers().empty());
}

}  // namespace
}  // namespace onebatch
