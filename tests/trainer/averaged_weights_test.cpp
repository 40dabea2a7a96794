#include "trainer/checkpoint/averaged_weights.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/models/module_kind.hpp"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <optional>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Pair;
using Bytes = std::vector<std::byte>;

constexpr std::array<std::byte, 4> k_raw = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
constexpr std::array<std::byte, 4> k_average = {std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};

using Names = std::map<std::string, std::string>;

// A trained weight, another name of it, and a frozen one that happens to have its bits.
fs::path checkpoint_in(const fs::path& folder, std::optional<Names> shared) {
  CheckpointContents contents;
  contents.state.step = 3;
  contents.state.global_batch_size = 8;
  contents.state.devices = {"CPU"};
  contents.state.shared_names = std::move(shared);
  contents.model = {{"frozen", "U8", {4}, k_raw}, {"tied", "U8", {4}, k_raw}, {"trained", "U8", {4}, k_raw}};
  contents.optimizer = {{"ema.trained", "U8", {4}, k_average}};
  return write_contents(folder, contents, {});
}

// Names of tensors that have the average.
std::vector<std::string> averaged_in(const fs::path& checkpoint, const fs::path& target) {
  write_averaged_model(checkpoint, target);
  const SafetensorsHeader header = read_safetensors_header(target);
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : header.entries) {
    if (read_safetensors_entry(target, header, entry) == Bytes(k_average.begin(), k_average.end()))
      names.push_back(entry.name);
  }
  return names;
}

TEST(AveragedWeightsTest, a_tensor_of_the_same_bits_keeps_its_own_unless_it_is_shared) {
  const testing::ScratchFolder folder;
  EXPECT_THAT(averaged_in(checkpoint_in(folder.path(), Names{{"tied", "trained"}}), folder / "exported"),
              ElementsAre("tied", "trained"));
}

TEST(AveragedWeightsTest, of_an_earlier_versions_checkpoint_the_same_bits_are_the_same_tensor) {
  const testing::ScratchFolder folder;
  EXPECT_THAT(averaged_in(checkpoint_in(folder.path(), std::nullopt), folder / "exported"),
              ElementsAre("frozen", "tied", "trained"));
}

struct Tied : torch::nn::Module {
  Tied() {
    const auto weight = register_parameter("weight", at::ones({3}));
    register_parameter("same", weight);
    register_parameter("alike", at::ones({3}));
  }
  at::Tensor forward(const at::Tensor& inputs) { return inputs.mul(parameters()[0]); }
};

TEST(AveragedWeightsTest, names_are_shared_where_the_tensor_is) {
  const auto model = wrap_module(std::make_shared<Tied>(), ModelRequest(), "model.kind = \"mine\"");
  EXPECT_THAT(shared_names(*model), ElementsAre(Pair("same", "weight")));
}

}  // namespace
}  // namespace onebatch
