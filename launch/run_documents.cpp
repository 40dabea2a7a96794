// The documents of a run's folder: profile.json and plan.json.
#include "launch/sinks.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/io/durable_file.hpp"

namespace onebatch::launch {
namespace {

class RunDocuments {
 public:
  explicit RunDocuments(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  void operator()(const Event& event) {
    if (const auto* measured = std::get_if<event::ProfileMeasured>(&event))
      save("profile.json", to_json(measured->profile));
    if (const auto* made = std::get_if<event::PlanMade>(&event)) save("plan.json", to_json(made->plan));
  }

 private:
  void save(const char* name, const std::string& text) const { write_text_atomically(run_dir_ / name, text + "\n"); }

  std::filesystem::path run_dir_;
};

}  // namespace

Listener make_run_documents(const SinkOptions& options) {
  if (options.run_dir.empty()) return [](const Event&) {};
  return RunDocuments(options.run_dir);
}

}  // namespace onebatch::launch
