#include "trainer/checkpoint/checkpoint_contents.hpp"

#include "scratch_folder.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::read_bytes;
using testing::ScratchFolder;

constexpr std::array<std::byte, 4> k_bytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

CheckpointContents contents_of_step(std::int64_t step) {
  CheckpointContents contents;
  contents.state.step = step;
  contents.state.global_batch_size = 8;
  contents.state.devices = {"CPU"};
  contents.model = {{"weight", "U8", {4}, k_bytes}};
  contents.optimizer = {{"exp_avg.weight", "U8", {2, 2}, k_bytes}};
  return contents;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(CheckpointContentsTest, what_is_written_is_read_back) {
  const ScratchFolder folder;
  const fs::path written = write_contents(folder / "checkpoints", contents_of_step(5), {});
  EXPECT_EQ(written.filename(), "step-5");
  check_checkpoint(written);
  const SafetensorsHeader header = read_safetensors_header(written / k_optimizer_file);
  ASSERT_EQ(header.entries.size(), 1U);
  EXPECT_EQ(header.entries[0].name, "exp_avg.weight");
  EXPECT_THAT(header.entries[0].shape, ElementsAre(2, 2));
  EXPECT_EQ(read_safetensors_entry(written / k_optimizer_file, header, header.entries[0]),
            std::vector<std::byte>(k_bytes.begin(), k_bytes.end()));
  EXPECT_EQ(parse_run_state(read_bytes(written / k_state_file), "state").step, 5);
}

TEST(CheckpointContentsTest, what_no_rank_has_has_no_file) {
  const ScratchFolder folder;
  EXPECT_THAT(names_in(write_contents(folder.path(), contents_of_step(1), {})),
              ElementsAre("manifest.json", k_model_file, k_optimizer_file, k_state_file));
  CheckpointContents contents = contents_of_step(2);
  contents.buffers = {{"rank0.mean", "U8", {4}, k_bytes}};
  contents.generators = {{"rank0.cpu", "U8", {4}, k_bytes}};
  EXPECT_THAT(
      names_in(write_contents(folder.path(), contents, {})),
      ElementsAre("manifest.json", k_model_file, k_optimizer_file, k_buffers_file, k_generators_file, k_state_file));
}

}  // namespace
}  // namespace onebatch
