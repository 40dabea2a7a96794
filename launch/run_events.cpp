// events.jsonl: what happened in a run, over all of its starts, in the lines that programs of [[log.sinks]] are told.
// Never cut back: it is history.
#include "comm/world.hpp"
#include "launch/run_line.hpp"
#include "launch/sinks.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/events/event_json.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

// metrics.jsonl, profile.json and plan.json have these.
bool has_a_file_of_its_own(std::string_view name) {
  return name == "step" || name == "profile" || name == "plan";
}

// A line that whoever was ended in the midst of it has left: what follows it is on lines of its own.
bool ends_within_a_line(const fs::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

class RunEvents {
 public:
  explicit RunEvents(const SinkOptions& options) : file_(options.run_dir / "events.jsonl") {
    waiting_ = run_line(*options.loaded, options.run_dir, options.as_typed, options.world->size()) + "\n";
  }

  void operator()(const Event& event) {
    if (given_up_) return;
    begun_ = begun_ || begins_a_run(event);
    if (!has_a_file_of_its_own(name_of(event))) waiting_ += to_json_line(event, number_) + "\n";
    ++number_;
    if (begun_ && !waiting_.empty()) write();
  }

 private:
  // Whole lines at the file's end, whoever else has written there. The run is worth more.
  void write() {
    const bool torn = ends_within_a_line(file_);
    errno = 0;
    std::ofstream out(file_, std::ios::app);
    out << (torn ? "\n" : "") << waiting_;
    out.close();
    waiting_.clear();
    if (out) return;
    given_up_ = true;
    print_error(fmt::format("onebatch: warning: cannot write {}: {}\n", file_.string(),
                            std::strerror(errno != 0 ? errno : EIO)));
  }

  fs::path file_;
  std::string waiting_;
  std::int64_t number_ = 1;
  bool begun_ = false;  // before, a start that is refused leaves nothing
  bool given_up_ = false;
};

}  // namespace

Listener make_run_events(const SinkOptions& options) {
  const bool writes =
      options.loaded != nullptr && options.world != nullptr && options.world->rank() == 0 && !options.run_dir.empty();
  if (!writes) return [](const Event&) {};
  return [events = std::make_shared<RunEvents>(options)](const Event& event) { (*events)(event); };
}

}  // namespace onebatch::launch
