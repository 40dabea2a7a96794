// Rounds of micro-batches that train by native code: it waits in its BatchNorms for the others.
#include "trainer/base/error.hpp"
#include "trainer/batch_norm/shared_norms.hpp"
#include "trainer/device/native_words.hpp"
#include "trainer/models/compiled_program.hpp"
#include "trainer/replica/train_micro_batch.hpp"
#include "trainer/step/rounds.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace onebatch {
namespace {

template <typename Sums>
std::vector<Sums> in_slots(const std::vector<Sums>& of_micro_batches, std::size_t slots) {
  std::vector<Sums> merged(slots);
  for (std::size_t k = 0; k < of_micro_batches.size(); ++k) merged[std::min(k, slots - 1)].add(of_micro_batches[k]);
  return merged;
}

// Where all micro-batches of a rank are.
struct Meeting {
  Turns& turns;
  std::vector<Norm*> norms;  // by layer
  std::vector<Moments> moments;
  std::vector<OutputSums> sums;
  OutputSums total;
  std::size_t layer = 0;
  bool in_backward = false;
  bool is_lost = false;  // not where the others are, or nowhere

  // Not from within the code, which passes on that it has failed, and no more.
  void check(bool is_right) const {
    if (is_lost || !is_right)
      throw UserError("model.compiled: the code meets other BatchNorms than the program: leave it out");
  }

  void come(std::size_t mine, std::size_t to, bool of_backward) {
    is_lost |= to >= norms.size() || (mine != 0 && (to != layer || of_backward != in_backward));
    layer = to;
    in_backward = of_backward;
    try {
      turns.pause(mine);
    } catch (...) {
      NativeWords::drop_current();  // nobody asks what it makes of that
      throw;
    }
  }
};

// Of one of them.
class Attendant : public NormSharer {
 public:
  Attendant(Meeting& meeting, std::size_t mine) : meeting_(meeting), mine_(mine) {}

  const Normaliser& share(std::size_t layer, const Moments& mine, double /*eps*/,
                          const at::TensorOptions& /*options*/) override {
    meeting_.moments[mine_] = mine;
    meeting_.come(mine_, layer, false);
    return normaliser(layer);
  }
  [[nodiscard]] const Normaliser& normaliser(std::size_t layer) const override { return meeting_.norms.at(layer)->by; }
  // Code computes gradients of frozen parameters too, which nobody adds up.
  OutputSums share(std::size_t layer, const OutputSums& mine) override {
    if (layer < meeting_.norms.size() && !meeting_.norms[layer]->has_gradient) return mine;
    meeting_.sums[mine_] = mine;
    meeting_.come(mine_, layer, true);
    return meeting_.total;
  }

 private:
  Meeting& meeting_;
  std::size_t mine_;
};

}  // namespace

void Rounds::run_native(std::vector<MicroBatch>& micro_batches) {
  const at::NoGradGuard no_grad;
  const std::size_t number = micro_batches.size();
  compiled_of(*replica_.model)->compiled->let_run_at_once(number);
  Meeting meeting{*turns_, {}, std::vector<Moments>(number), std::vector<OutputSums>(number), {}};
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    if (!norms_[i]) continue;
    meeting.norms.push_back(norms_[i].get());
    places.push_back(i);
  }
  std::size_t met = 0;               // layers of the forward
  std::size_t left = places.size();  // layers of the backward, from the last on
  // Layers whose outputs have no gradient in the code: others wait for zeros.
  const auto skip_to = [&](std::size_t layer) {
    while (left > layer) {
      const Norm& norm = *meeting.norms[--left];
      if (norm.has_gradient) total_of(std::vector<OutputSums>(slots_), norm);
    }
  };
  const auto train = [&](std::size_t k) {
    Attendant attendant(meeting, k);
    const SharingScope scope(attendant);
    train_native(micro_batches[k]);
  };
  turns_->run(number, train, [&] {
    meeting.check(meeting.in_backward || meeting.layer == met++);
    if (meeting.in_backward) {
      skip_to(meeting.layer + 1);
      meeting.check(left == meeting.layer + 1);
      meeting.total = total_of(in_slots(meeting.sums, slots_), *meeting.norms[--left]);
    } else {
      settle_moments(in_slots(meeting.moments, slots_), places[meeting.layer]);
    }
  });
  meeting.check(met == places.size());
  skip_to(0);
  if (twice_) kept_bytes_per_sample_ = std::numeric_limits<double>::infinity();
}

void Rounds::train_native(const MicroBatch& micro_batch) {
  const Replica::Forward made = train_micro_batch(replica_, micro_batch.batch, micro_batch.context, {numbers_.factor});
  numbers_.add(made.loss, made.weight, replica_);
}

}  // namespace onebatch
