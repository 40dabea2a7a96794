// metrics.jsonl as an earlier run left it: what is kept of it, and that it is kept once.
#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/events/step_writer.hpp"

#include <nlohmann/json.hpp>

#include <sstream>

namespace onebatch::fuzz {
namespace {

constexpr std::int64_t k_resume_step = 7;

std::string resumed(const std::filesystem::path& file, std::int64_t step) {
  static_cast<void>(StepWriter(file, {}, step));
  return read_file(file);
}

void run(std::string_view input) {
  const auto file = scratch_folder() / "metrics.jsonl";
  write_file(file, input);
  const std::string kept = resumed(file, k_resume_step);
  std::istringstream lines(kept);
  for (std::string line; std::getline(lines, line);)
    check(nlohmann::json::parse(line).at("step") <= k_resume_step, "no line of a later step is kept: " + line);
  check(resumed(file, k_resume_step) == kept, "what is kept is kept the next time");
  StepRecord record;
  record.step = k_resume_step + 1;
  StepWriter(file, {}, k_resume_step).write(record, 0.0);
  check(resumed(file, k_resume_step + 1).starts_with(kept) && read_file(file).size() > kept.size(),
        "a line that was written is read");
  check(resumed(file, k_resume_step) == kept, "and cut back");
}

const Registered k_registered("metrics", run);

}  // namespace
}  // namespace onebatch::fuzz
