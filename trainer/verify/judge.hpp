// Rank 0's part of verify: the references, and what was found.
#pragma once

#include "trainer/base/results.hpp"
#include "trainer/step/step.hpp"
#include "trainer/verify/expected_update.hpp"
#include "trainer/verify/host_replica.hpp"
#include "trainer/verify/judgement.hpp"
#include "trainer/verify/reasons.hpp"
#include "trainer/verify/reference_validation.hpp"

namespace onebatch {

/// A global batch that the plan has trained on.
struct TrainedBatch {
  std::string where;  // "step 1", "last batch"
  std::vector<std::int64_t> samples;
  std::int64_t step = 0;
  Plan plan;
  double lr = 0.0;
  Weights before;     // that it began with
  Gradient gradient;  // before clipping
  StepTotals totals;
  std::vector<NamedTensor> buffers;  // afterwards, averaged over ranks
};

class Judge {
 public:
  /// From the weights that the replica has now. `tolerance` of gradients as the user gave it; 0: none.
  Judge(const ReferenceParts& parts, double tolerance);

  /// Before a step, of its first samples alone: at once and in parts.
  void judge_separation(const TrainedBatch& batch);
  /// `update`: made before the step.
  void judge(const TrainedBatch& batch, const ExpectedUpdate& update);
  void judge(const TrainedValidation& found);
  void judge_replicas(const std::string& parameter_that_differs);
  void note(const std::string& line) { report_.notes.push_back(line); }
  /// The verdict, and its reason.
  VerifyReport finish();

 private:
  Judge(const ReferenceParts& parts, double tolerance, const Weights& weights);
  // One single batch as the run would compute it.
  struct Own {
    ReferenceModel::Answer answer;
    double error = 0.0;  // in its order or others, the largest
    std::vector<NamedTensor> buffers;
  };
  Own own_answer(const TrainedBatch& batch, const ReferenceModel::Answer& exact);
  Own own_answer_on(c10::Device device, const TrainedBatch& batch, const ReferenceModel::Answer& exact);
  void judge_gradient(const TrainedBatch& batch, const Gradient& exact, const Own& own);
  Judgement at_a_kink(const TrainedBatch& batch, const Gradient& exact, double error, const Judgement& found);
  void judge_float64(const TrainedBatch& batch, const Gradient& exact);
  void judge_groups(const TrainedBatch& batch, const Gradient& exact, const Own& own);
  void judge_sums(const TrainedBatch& batch, const BatchSums& exact, const Own& single);
  void judge_buffers(const TrainedBatch& batch, const Own& own);
  void explain(const TrainedBatch& batch, const Gradient& exact, double error, double tolerance);
  void describe(const TrainedBatch& batch, const Gradient& exact, const Own& own);
  [[nodiscard]] double rounding(const TrainedBatch& batch, double u) const;
  [[nodiscard]] Reason wrong_update(const TrainedBatch& batch, const std::string& worst) const;
  [[nodiscard]] double roundoff_of_numbers() const;
  void add(const std::string& what, const std::string& where, double error, const Judgement& judgement);
  void take(const Reason& reason);

  ReferenceParts parts_;
  double given_tolerance_;
  ReferenceModel reference_;  // in float64; its buffers go through all batches
  std::optional<ReferenceModel> own_;
  std::optional<HostReplica> host_;
  bool in_float64_on_host_;
  double inside_;  // the unit roundoff of the shortest type in which the model computes whatever it is asked for
  double float64_error_ = 0.0;
  VerifyReport report_;
};

}  // namespace onebatch
