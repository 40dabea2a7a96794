#include "launch/told_programs.hpp"

#include "comm/long_work.hpp"
#include "comm/world.hpp"
#include "launch/line_process.hpp"
#include "launch/run_line.hpp"
#include "launch/sinks.hpp"
#include "launch/standard_streams.hpp"
#include "trainer/base/error.hpp"
#include "trainer/events/event_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds k_patience_at_the_end{30};

bool is_file(const std::string& word) {
  std::error_code error;
  return fs::is_regular_file(word, error);
}

bool looks_like_a_script(const std::string& word) {
  return (word.ends_with(".py") || word.ends_with(".sh")) && !word.starts_with('-') &&
         word.find_first_of(" \t\n") == std::string::npos;
}

std::string name_of(const LogSink& sink) {
  const auto file = std::find_if(sink.command.begin() + 1, sink.command.end(), is_file);
  return fs::path(file == sink.command.end() ? sink.command.front() : *file).stem().string();
}

bool wants(const LogSink& sink, std::string_view event) {
  return sink.events.empty() || std::ranges::find(sink.events, event) != sink.events.end();
}

}  // namespace

void check_told_programs(const std::vector<LogSink>& sinks) {
  for (const LogSink& sink : sinks) {
    if (!is_program(sink.command.front()))
      throw UserError(fmt::format("log.sinks: there is no program {}: write one that is in PATH, or its path",
                                  sink.command.front()));
    for (auto word = sink.command.begin() + 1; word != sink.command.end(); ++word) {
      if (looks_like_a_script(*word) && !is_file(*word))
        throw UserError(
            fmt::format("log.sinks: there is no file {}: paths begin in the folder in which onebatch is "
                        "started",
                        *word));
    }
  }
}

std::vector<std::string> names_of(const std::vector<LogSink>& sinks) {
  std::vector<std::string> names;
  for (const LogSink& sink : sinks) {
    const std::string name = name_of(sink);
    std::string free = name;
    for (int number = 2; std::ranges::find(names, free) != names.end(); ++number)
      free = fmt::format("{}-{}", name, number);
    names.push_back(free);
  }
  return names;
}

namespace {

class ToldPrograms {
 public:
  explicit ToldPrograms(SinkOptions options)
      : options_(std::move(options)), sinks_(options_.loaded->configuration.log.sinks) {}
  ~ToldPrograms() { close(); }
  ToldPrograms(const ToldPrograms&) = delete;
  ToldPrograms& operator=(const ToldPrograms&) = delete;

  void operator()(const Event& event) {
    if (closed_) return;
    if (!started_ && !begins_a_run(event)) {
      before_.push_back(event);
      return;
    }
    if (!std::exchange(started_, true)) start();
    tell(event);
    say_notes();
    if (std::holds_alternative<event::Ended>(event) || std::holds_alternative<event::Failed>(event)) close();
  }

 private:
  void start() {
    const fs::path folder = options_.run_dir / "sinks";
    fs::create_directories(folder);
    const std::vector<std::string> names = names_of(sinks_);
    const std::string line = run_line(*options_.loaded, options_.run_dir, options_.as_typed, options_.world->size());
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      processes_.push_back(start({.name = fmt::format("log.sinks: {}", names[i]),
                                  .command = sinks_[i].command,
                                  .output = folder / fmt::format("{}.log", names[i])}));
      if (processes_.back()) processes_.back()->write(line, Line::kept);
    }
    ++number_;
    for (const Event& event : before_) tell(event);
    before_.clear();
  }

  // None where it cannot be started: the run is worth more.
  static std::unique_ptr<LineProcess> start(const LineProcessOptions& options) {
    try {
      return std::make_unique<LineProcess>(options);
    } catch (const std::system_error& error) {
      print_error(fmt::format("onebatch: warning: {}: {}\n", options.name, error.what()));
      return nullptr;
    }
  }

  void tell(const Event& event) {
    const std::string_view name = onebatch::name_of(event);
    std::string line;
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (!processes_[i] || !wants(sinks_[i], name)) continue;
      if (line.empty()) line = to_json_line(event, number_);
      processes_[i]->write(line, name == "step" ? Line::may_be_dropped : Line::kept);
    }
    ++number_;
  }

  void say_notes() {
    for (const auto& process : processes_) {
      if (!process) continue;
      for (const std::string& note : process->take_notes()) print_error(fmt::format("onebatch: warning: {}\n", note));
    }
  }

  void close() {
    closed_ = true;
    if (processes_.empty()) return;
    {
      const comm::LongWork waiting(options_.world->control(), "waiting for what log.sinks has started",
                                   k_patience_at_the_end);
      std::vector<std::thread> threads;
      for (const auto& process : processes_)
        threads.emplace_back([&process] {
          if (process) process->close(k_patience_at_the_end);
        });
      for (std::thread& thread : threads) thread.join();
    }
    options_.world->set_activity("");
    say_notes();
    processes_.clear();
  }

  SinkOptions options_;
  const std::vector<LogSink>& sinks_;
  std::vector<std::unique_ptr<LineProcess>> processes_;
  std::vector<Event> before_;  // what came before there was a run to tell of
  std::int64_t number_ = 0;
  bool started_ = false;
  bool closed_ = false;
};

}  // namespace

Listener make_told_programs(const SinkOptions& options) {
  const bool tells = options.loaded != nullptr && options.world != nullptr && options.world->rank() == 0 &&
                     !options.run_dir.empty() && !options.loaded->configuration.log.sinks.empty();
  if (!tells) return [](const Event&) {};
  return [programs = std::make_shared<ToldPrograms>(options)](const Event& event) { (*programs)(event); };
}

}  // namespace onebatch::launch
