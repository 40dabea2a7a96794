#include "trainer/checkpoint/survivor_save.hpp"

#include "comm/collect_votes.hpp"
#include "comm/incident.hpp"
#include "comm/local_communicator.hpp"

#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace onebatch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds k_longest_update{400};  // that is waited for, of the second that Open MPI leaves
constexpr milliseconds k_longest_vote{1000};
constexpr milliseconds k_before_the_kill{850};  // so that the launcher, where the file is short, ends after it
constexpr double k_after_a_timeout_seconds = 4.0;
constexpr double k_longest_save_seconds = 60.0;

// Said where writing takes too long: a signal handler can reach nothing but static storage.
std::array<char, 256> too_late{};

extern "C" void onebatch_save_is_too_late(int /*number*/) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, too_late.data(), std::strlen(too_late.data()));
  _exit(1);
}

// All ends within the timeout and some seconds of the loss.
unsigned seconds_to_save(bool waited_in_vain, double timeout_seconds) {
  const double more =
      waited_in_vain ? 0.0 : std::min(timeout_seconds, k_longest_save_seconds - k_after_a_timeout_seconds);
  return static_cast<unsigned>(k_after_a_timeout_seconds + more);
}

// The launcher kills by process group, and nothing of the run's own handlers is of use here.
void leave_the_launcher(int rank, unsigned seconds) {
  setsid();
  for (const int number :
       {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
    std::signal(number, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);  // the launcher has gone
  std::snprintf(too_late.data(), too_late.size(), "onebatch: rank %d: not saved: writing took longer than %u s\n", rank,
                seconds);
  std::signal(SIGALRM, onebatch_save_is_too_late);
  sigset_t all;
  sigemptyset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  alarm(seconds);
}

}  // namespace

SurvivorSave::SurvivorSave(Parts parts)
    : parts_(std::move(parts)),
      state_(parts_.state),
      files_(parts_.replica, parts_.generator_states),
      saved_step_(state_.step),
      notes_the_end_(comm::begin_to_note_the_end()) {
  if (!parts_.replica.device.device().is_cpu())
    why_never_ = "weights on a GPU are not copied once a rank is lost";
  else if ((board_ = parts_.world.make_survivor_board(files_.own_bytes())) == nullptr)
    why_never_ = "there is no room in shared memory for what the ranks keep for that";
  parts_.world.watchdog().on_loss(
      {.called = [this] { return board_ != nullptr && board_->called(); },
       .answer = [this](const comm::LossCall& call) { answer(call); },
       .answering = [this] { return child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0; }});
}

SurvivorSave::~SurvivorSave() {
  parts_.world.watchdog().on_loss({});
  if (notes_the_end_) comm::stop_noting_the_end();
}

void SurvivorSave::keep_own() {
  if (board_ == nullptr) return;
  files_.write_own(board_->begin(state_.step + 1));
  board_->keep(state_.step + 1);
}

void SurvivorSave::begin_update(const char* what) {
  gate_.acquire();
  in_use_ = what;
  updating_ = true;
}

void SurvivorSave::end_step(RunState progress, StepEnd end) {
  if (!updating_) gate_.acquire();
  updating_ = false;
  if (end == StepEnd::restored) keep_own();  // mine is known, that of a rank that is lost in this moment is not
  own_is_known_ = end == StepEnd::updated || !files_.is_local();
  state_.step = progress.step;
  state_.position = progress.position;
  state_.loss_scale = progress.loss_scale;
  state_.loss_scale_steps = progress.loss_scale_steps;
  state_.bases = std::move(progress.bases);
  state_.shares = std::move(progress.shares);
  state_.validations = std::move(progress.validations);
  files_.note_versions();
  gate_.release();
}

void SurvivorSave::note_plan(const EpochPlan& plan) {
  gate_.acquire();
  state_.plan = plan;
  gate_.release();
}

void SurvivorSave::end_of_use() {
  files_.note_versions();
  updating_ = false;
  gate_.release();
}

void SurvivorSave::this_rank_failed() {
  if (board_ != nullptr) board_->abstain();
  another_rank_failed();
}

void SurvivorSave::another_rank_failed() {
  parts_.world.control().barrier();  // the one that failed has said so before anyone votes
  lost();
}

// Of ranks that end in order: the others wait for them meanwhile, and with rank 0 its lock goes.
milliseconds SurvivorSave::longest_goodbye() const {
  const double seconds =
      std::min(0.8 * parts_.world.watchdog().timeout_seconds(), k_longest_save_seconds - k_after_a_timeout_seconds);
  return std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(seconds));
}

void SurvivorSave::lost() {
  if (board_ == nullptr) return;
  board_->call();
  wait_for_answer();
}

void SurvivorSave::wait_for_answer() const {
  const auto until = Clock::now() + longest_goodbye();
  while (!answered_ && Clock::now() < until) std::this_thread::sleep_for(milliseconds(5));
}

// On the watching thread.
void SurvivorSave::answer(const comm::LossCall& call) {
  if (board_ == nullptr) {
    if (call.rank == 0) comm::say_failure(call.rank, "not saved: " + why_never_);
    return;
  }
  if (call.loss == comm::Loss::timeout)
    board_->call_in_vain();
  else
    board_->call();
  if (child_ == 0 && !board_->abstains()) {
    const StepState step = gate_.try_acquire_for(k_longest_update) ? StepState::whole : StepState::in_use;
    board_->promise();
    child_ = fork();
    if (child_ == 0) live_on(call, step);
    if (child_ < 0)
      comm::say_failure(call.rank, std::string("not saved: no process can be made to do it: ") + std::strerror(errno));
  }
  if (child_ > 0 && call.loss != comm::Loss::timeout)
    wait_for_child(call.loss == comm::Loss::launcher ? k_before_the_kill : longest_goodbye());
  answered_ = true;
}

void SurvivorSave::wait_for_child(milliseconds patience) {
  const auto until = Clock::now() + patience;
  const bool was_noted = comm::end_is_noted();
  while (Clock::now() < until && waitpid(child_, nullptr, WNOHANG) == 0) {
    if (comm::end_is_noted() != was_noted) return wait_for_child(k_before_the_kill);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void SurvivorSave::live_on(const comm::LossCall& call, StepState step) {
  leave_the_launcher(call.rank, seconds_to_save(board_->called_in_vain(), parts_.world.watchdog().timeout_seconds()));
  std::string line;
  try {
    line = vote_and_save(call, step);
    if (!line.empty()) parts_.options.tell_of_loss(line);
  } catch (const std::exception& error) {
    comm::say_failure(call.rank, std::string("not saved: ") + error.what());
  }
  _exit(0);
}

std::string SurvivorSave::why_not_whole(StepState step) const {
  if (step == StepState::in_use) return in_use_.load();
  const std::string changed = files_.changed_tensor();
  if (!changed.empty()) return changed + " has changed since the step was done";
  if (state_.step > saved_step_ && !board_->own_of(parts_.world.rank(), state_.step))
    return fmt::format("what it keeps of step {} is not there", state_.step);
  return {};
}

// What is to be said; empty: another rank says it.
std::string SurvivorSave::vote_and_save(const comm::LossCall& call, StepState step) {
  const std::string why = why_not_whole(step);
  const std::string not_mine = parts_.options.why_not_write(FolderUse::look);
  comm::Vote mine{.rank = call.rank};
  if (why.empty()) {
    const auto own = board_->own_of(call.rank, state_.step);
    mine = {call.rank, state_.step, own ? files_.digest(state_, *own) : Digest{}, not_mine.empty()};
  }
  board_->vote(mine);
  const auto votes = comm::collect_votes(*board_, call, k_longest_vote);
  const auto decision = comm::decide(votes, parts_.replicas);
  if (!decision || decision->speaker != call.rank || !board_->claim()) return {};
  const std::string after = loss_text(votes);
  const std::string step_text = fmt::format("step {}", decision->step);
  if (!why.empty()) return "not saved after " + after + ": " + why;
  if (!decision->why_not.empty())
    return "not saved after " + after + ": " + decision->why_not + (not_mine.empty() ? "" : ": " + not_mine);
  if (decision->step == 0) return "not saved after " + after + ": no step was done yet";
  if (decision->step <= saved_step_) return "nothing to save after " + after + ": " + step_text + " is saved already";
  try {
    return save(*decision, step_text, after);
  } catch (const std::exception& error) {
    return "not saved after " + after + ": " + error.what();
  }
}

std::string SurvivorSave::save(const comm::Decision& decision, const std::string& step,
                               const std::string& after) const {
  if (!own_is_known_)
    throw std::runtime_error(fmt::format(
        "step {} was skipped, and the running statistics of the others before it are not known", state_.step));
  std::vector<std::optional<OwnBytes>> own;
  for (int rank = 0; rank < parts_.world.size(); ++rank) own.push_back(board_->own_of(rank, state_.step));
  const auto files = files_.files(state_, own, parts_.world.rank());
  const auto take_the_folder = [&] {
    if (const std::string why = parts_.options.why_not_write(FolderUse::take); !why.empty())
      throw std::runtime_error(why);
  };
  take_the_folder();
  const int rank = parts_.world.rank();
  switch (add_checkpoint(parts_.options.run_dir / "checkpoints", state_.step, files, parts_.retention,
                         fmt::format("rank{}", rank), take_the_folder)) {
    case Added::by_another: return {};  // which says so
    case Added::was_there: return "nothing to save after " + after + ": " + step + " or a later one is there already";
    case Added::now: break;
  }
  return fmt::format("saved {} by rank {} after {}{}", step, rank, after,
                     decision.agreeing.size() == 1 ? ", which it alone has finished"
                                                   : ", the same on ranks " + comm::ranks_text(decision.agreeing));
}

std::string SurvivorSave::loss_text(const std::vector<comm::Vote>& votes) const {
  std::vector<int> lost;
  for (int rank = 0; rank < parts_.world.size(); ++rank) {
    if (std::ranges::find(votes, rank, &comm::Vote::rank) == votes.end()) lost.push_back(rank);
  }
  if (lost.empty()) return board_->called_in_vain() ? "ranks waited in vain" : "the launcher ended the run";
  return "the loss of rank " + comm::ranks_text(lost);
}

}  // namespace onebatch
