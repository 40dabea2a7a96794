#include "trainer/run/compiled_by_run.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/models/exported.hpp"
#include "trainer/run/compiled_cache.hpp"
#include "trainer/run/compiled_trials.hpp"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

namespace onebatch {
namespace {

constexpr std::int64_t k_most_samples = 16;  // of a micro-batch that is timed before the probe has found a size

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string why_not(const RunToCompile& run) {
  std::string why = why_not_here(run.configuration, run.runner);
  if (why.empty()) why = why_not_compiled(run.configuration);
  if (why.empty() && names_output(run.configuration.model))
    why = "does not go with model.output: leave one of them out";
  return why.empty() ? "" : "model.compiled = \"auto\" " + why;
}

std::int64_t trial_size(const BatchConfiguration& batch, const comm::Communicator& control) {
  const std::vector<std::int64_t>& fixed = batch.micro_batch_size;
  if (!fixed.empty()) return fixed.size() == 1 ? fixed.front() : fixed.at(static_cast<std::size_t>(control.rank()));
  return std::clamp<std::int64_t>(batch.global_batch_size / control.size(), 2, k_most_samples);
}

class Choice {
 public:
  explicit Choice(const RunToCompile& run) : run_(run), replica_(run.runner.replica()), due_(as_compiled(run)) {}

  void make() {
    if (!nothing_against([&] { return why_not(run_); }) || !take_package()) return;
    const bool taken = nothing_against([&] { return load(); }) && is_worth_it();
    if (!taken) return train_compiled(*replica_.model, nullptr);
    const std::string folder = package_->training.parent_path().string();
    set_compiled_folder(run_.configuration.model, folder);
    const bool by_times = run_.configuration.run.deterministic == Determinism::off;
    because_ += settle_evaluation(run_, by_times ? trial_size(run_.configuration.batch, run_.control) : 0).said;
    run_.events.info(
        fmt::format("{} is a compiled program: it is code, and runs with your rights; {}", folder, because_));
  }

 private:
  // What a rank has against it: then all go on without.
  bool nothing_against(const std::function<std::string()>& reason) {
    std::string mine;
    try {
      mine = first_line(reason());
    } catch (const std::exception& error) {
      mine = first_line(words_of(error));
    }
    const std::vector<std::string> reasons = comm::all_gather_text(run_.control, mine);
    const auto first = std::ranges::find_if(reasons, [](const std::string& one) { return !one.empty(); });
    if (first == reasons.end()) return true;
    const auto rank = first - reasons.begin();
    run_.events.info(
        fmt::format("the run goes on uncompiled: {}{}", rank == 0 ? "" : fmt::format("rank {}: ", rank), *first));
    return false;
  }

  // In which others than this user have no say: that alone ends the run.
  void ask_cache(const std::function<void()>& work) {
    agree(run_.control, [&] {
      try {
        work();
      } catch (const UserError&) {
        throw;
      } catch (const std::exception& error) {
        answer_.why_not = words_of(error);
      }
    });
  }

  bool take_package() {
    ask_cache([&] {
      cache_.emplace(due_, TORCH_VERSION, compiled_for(replica_.device));
      answer_ = cache_->look();
    });
    PythonSearch search;
    const bool may_be_made = nothing_against([&] {
      if (answer_.known()) return answer_.why_not;
      search = find_compiling_python();
      return search.found ? "" : why_no_python(search);
    });
    if (!may_be_made) return false;
    if (say_where_it_is_made()) make_package(search);
    if (!nothing_against([&] { return answer_.why_not; })) return false;
    package_ = answer_.package;
    return true;
  }

  // False: all have one.
  bool say_where_it_is_made() {
    const std::vector<std::string> places =
        comm::all_gather_text(run_.control, answer_.known() ? "" : cache_->place().string());
    const auto first = std::ranges::find_if(places, [](const std::string& one) { return !one.empty(); });
    if (first == places.end()) return false;
    run_.events.info(fmt::format("compiling {} for this machine: half a minute or more; kept in {}",
                                 run_.configuration.model.path, *first));
    return true;
  }

  void make_package(const PythonSearch& search) {
    ask_cache([&] {
      if (answer_.known()) return;
      const comm::LongWork working(
          run_.control, "compiling " + std::filesystem::path(run_.configuration.model.path).filename().string(),
          2 * k_longest_compilation);  // another process may be about it first
      const auto* stop = run_.options.stop_requested;
      answer_ = cache_->make(*search.found, [stop] { return stop != nullptr && stop->load() != 0; });
    });
  }

  std::string load() {
    const comm::LongWork working(run_.control, "comparing the compiled program");
    train_by(*package_, run_, package_->training.parent_path().string());
    return "";
  }

  // By the samples per second of all ranks together, where the run may depend on times.
  bool is_worth_it() {
    if (run_.configuration.run.deterministic != Determinism::off) {
      because_ = "run.deterministic leaves no choice to times";
      return true;
    }
    CompiledTimes times;
    const auto time = [&] {
      const comm::LongWork working(run_.control, "timing the compiled program");
      times = time_compiled(run_.runner, run_.data, trial_size(run_.configuration.batch, run_.control));
      return "";
    };
    if (!nothing_against(time)) return false;
    std::array<double, 2> rates = {times.samples_per_second, times.samples_per_second / times.ratio};
    run_.control.all_reduce(rates.data(), rates.size(), comm::ScalarType::float64, comm::ReduceOp::sum);
    if (rates[0] == 0.0) {
      because_ = "the program uncompiled has no room";
      return true;
    }
    because_ = fmt::format("compiled micro-batches take {:.2f} of the time of uncompiled ones", rates[0] / rates[1]);
    if (rates[1] > rates[0]) return true;
    run_.events.info("the run goes on uncompiled: " + because_);
    return false;
  }

  const RunToCompile& run_;
  Replica& replica_;
  Configuration due_;
  std::optional<CompiledCache> cache_;
  CompiledCache::Answer answer_;
  std::optional<CompiledPackage> package_;
  std::string because_;
};

}  // namespace

void use_what_the_run_compiles(const RunToCompile& run) {
  if (run.options.purpose == SessionFor::training) Choice(run).make();
  // The cache of what was probed, and whoever asks, is to see what has become of it.
  if (compiles_by_itself(run.configuration.model)) set_compiled_folder(run.configuration.model, "");
}

}  // namespace onebatch
