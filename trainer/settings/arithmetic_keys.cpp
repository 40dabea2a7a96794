// How numbers are computed, kept and reduced; how sizes are found.
#include "trainer/settings/sections.hpp"
#include "trainer/settings/special_keys.hpp"

namespace onebatch {
namespace {

constexpr Changes k_both = Changes::result | Changes::probe;

std::vector<Choice<Precision>> precisions() {
  return {{"float32", Precision::float32},
          {"float64", Precision::float64},
          {"bfloat16", Precision::bfloat16},
          {"float16", Precision::float16}};
}

}  // namespace

KeysOf<PrecisionConfiguration> precision_keys() {
  using P = PrecisionConfiguration;
  return {
      choice_key({"compute", k_both,
                  "or `\"float64\"`; `\"bfloat16\"` or `\"float16\"`: with float32 parameters, forwards under "
                  "autocast, and gradients and optimizer in float32. See [Precision](precision.md)"},
                 precisions(), &P::compute),
      choice_key({"parameters", k_both | Changes::run,
                  "or `\"float64\"`, `\"bfloat16\"`, `\"float16\"`; the same as `precision.compute`, but for autocast"},
                 precisions(), &P::parameters),
      boolean_key({"master_weights", k_both,
                   "16-bit parameters: the optimizer updates float32 copies, and gradients are summed in float32; "
                   "false: neither, which is likely to end in NaN"},
                  &P::master_weights),
      loss_scale_key({"loss_scale", Changes::result,
                      "float16: what the mean loss is multiplied by before the backward, as PyTorch's `GradScaler` "
                      "finds it; or a number"}),
      integer_key(
          {"loss_scale_growth_steps", Changes::result, "good steps in a row after which a dynamic scale doubles"}, 1,
          k_any, &P::loss_scale_growth_steps),
      boolean_key(
          {"allow_tf32", k_both, "Ampere and later: matrices and convolutions in TF32, which rounds to 10 bits"},
          &P::allow_tf32),
      channels_last_key({"channels_last", k_both,
                         "true: images and the weights of convolutions over them lie in memory as [N, H, W, C], which "
                         "is what a GPU's matrix units read; whatever the run writes stays in the ordinary order, and "
                         "only the rounding differs. A model whose loss or gradient would be another then (a trace "
                         "with `view`) is refused. auto: on for a GPU where such convolutions compute in 16 bits or "
                         "TF32 and the model allows it, which is tried on the host. false: as the model has it"}),
      boolean_key({"cudnn_benchmark", k_both,
                   "cuDNN times its algorithms for every new shape and takes the quickest, which may be another one "
                   "each time: not with `run.deterministic`"},
                  &P::cudnn_benchmark)};
}

KeysOf<BatchNormConfiguration> batch_norm_keys() {
  using B = BatchNormConfiguration;
  return {
      choice_key({"mode", k_both,
                  "each micro-batch normalises by itself, as in every common framework. That is *not* the large batch, "
                  "and `verify` says so. `\"sync\"`: one micro-batch of every rank together, in lock-step: the large "
                  "batch where there is one accumulation step, else not, and `verify` says so. `\"exact\"`: "
                  "statistics, and the gradient through them, of the whole global batch, over ranks and accumulation "
                  "steps: see [BatchNorm](batch_norm.md). It computes every forward twice where there is more than one "
                  "micro-batch to wait for; [native code](compiled.md#batchnorm-over-micro-batches) once, where memory "
                  "holds all activations"},
                 {{"local", BatchNormMode::local}, {"sync", BatchNormMode::sync}, {"exact", BatchNormMode::exact}},
                 &B::mode),
      boolean_key({"frozen", k_both, "normalise with the running statistics also in training, and never change them"},
                  &B::frozen),
      integer_key({"min_micro_batch_size", Changes::result,
                   "samples from which BatchNorm takes statistics: with `\"local\"` the plan has no smaller "
                   "micro-batch (with `\"sync\"` no smaller micro-step of all ranks), unless an even share of the "
                   "batch is smaller or memory holds fewer, which is said; equally quick splits are of like sizes. 1: "
                   "the quickest plan, whatever its sizes"},
                  1, k_any, &B::min_micro_batch_size),
      sync_key({"sync_batchnorm", Changes::nothing, "true: another way to write `mode = \"sync\"`"})};
}

KeysOf<MemoryConfiguration> memory_keys() {
  using M = MemoryConfiguration;
  return {
      recompute_key(
          {"recompute", k_both,
           "how many segments a micro-batch's forward is cut into, of which each is computed again in the backward "
           "instead of kept: less memory, one more forward, the same bits, but for a weight that several of them use "
           "in 16 bits. `\"auto\"`: only on a rank where not even the least micro-batch, or not the fixed one, fits "
           "otherwise, in as many segments as take the least memory; [native code](compiled.md#memory-for-time) also "
           "where that makes the step shorter. Exact BatchNorm computes again in any case, but in native code"}),
      choice_key(
          {"offload", Changes::result,
           "what exact BatchNorm keeps of a rank's share goes to host memory where the device has no room for it or "
           "the plan is quicker so, and the host [has room](batch_norm.md#memory), which is said; `\"never\"`: smaller "
           "micro-batches and other shares instead"},
          {{"auto", Offload::automatic}, {"never", Offload::never}}, &M::offload),
      boolean_key({"expandable_segments", Changes::probe,
                   "a CUDA GPU's memory is taken in segments that grow, so that pieces of unlike sizes leave fewer "
                   "gaps. This and the next two are LibTorch's own and go before the same ones in "
                   "`PYTORCH_CUDA_ALLOC_CONF`, which is said; its others stay"},
                  &M::expandable_segments),
      optional_integer_key(
          {"max_split_size_mb", Changes::probe,
           "a CUDA GPU's blocks of more MiB than this are not split for smaller ones, which leaves fewer gaps; from 21",
           "none"},
          21, "", &M::max_split_size_mb),
      number_key({"garbage_collection_threshold", Changes::probe,
                  "share of its memory limit from which a CUDA GPU's unused blocks are given back, the oldest first. "
                  "0: none before memory runs out"},
                 {0.0, 0.99}, &M::garbage_collection_threshold)};
}

KeysOf<ProbeConfiguration> probe_keys() {
  using P = ProbeConfiguration;
  return {choice_key({"mode", k_both,
                      "`\"model\"`: two or three small trials predict the largest size, one verifies it; `\"power\"`, "
                      "`\"binsearch\"`: doubling, and bisection after it"},
                     {{"model", ProbeMode::model}, {"power", ProbeMode::power}, {"binsearch", ProbeMode::binsearch}},
                     &P::mode),
          number_key({"margin", k_both, "share of the largest micro-batch that fits which the plan leaves unused"},
                     {0.0, 0.9}, &P::margin),
          integer_key({"init_val", k_both, "power, binsearch: the first size"}, 1, k_any, &P::init_val),
          integer_key({"max_val", k_both, "no larger size is tried"}, 1, k_any, &P::max_val),
          integer_key({"max_trials", k_both, ""}, 2, 1000, &P::max_trials),
          integer_key({"steps_per_trial", k_both,
                       "repetitions of which the time is the median; also how often, up to three times, times that a "
                       "busy machine has spoiled are taken. 1 is quickest, and believes what it sees"},
                      1, 1000, &P::steps_per_trial),
          boolean_key(
              {"cache", Changes::nothing,
               "an earlier answer to the same question (model, batch, devices of all ranks, versions, and whatever "
               "else it depends on) is confirmed by one trial instead of found anew; its times are taken again where "
               "that trial was 20 % off, and it is forgotten, or its times replaced by newer ones, where a run's steps "
               "are lastingly 20 % off them. Kept in `$XDG_CACHE_HOME/onebatch/probe` or `~/.cache/onebatch/probe`"},
              &P::cache)};
}

KeysOf<CommConfiguration> comm_keys() {
  using C = CommConfiguration;
  return {
      choice_key({"backend", k_both,
                  "`\"nccl\"`, `\"mpi\"`: what carries the gradient. auto: NCCL where every rank has a GPU of its own"},
                 {{"auto", CommBackend::automatic}, {"nccl", CommBackend::nccl}, {"mpi", CommBackend::mpi}},
                 &C::backend),
      number_key({"bucket_cap_mb", Changes::probe, "the gradient is reduced in pieces of this size (MiB)"},
                 {0.0, 1e6, true}, &C::bucket_cap_mb),
      overlap_key({"overlap", Changes::probe,
                   "true: reduce pieces during the last micro-batch's backward, on a thread of their own. auto: on for "
                   "GPUs, off on CPUs, where that thread would take a core from the backward"}),
      choice_key({"reduce_dtype", k_both,
                  "what travels. `\"bfloat16\"` rounds each rank's summed gradient to bfloat16 for the way: half the "
                  "bytes, three digits. Accumulation stays as it is. float64 parameters travel as float64"},
                 {{"float32", ReduceType::parameters}, {"bfloat16", ReduceType::bfloat16}}, &C::reduce_dtype),
      integer_key(
          {"check_replicas_every_steps", Changes::nothing,
           "compare all ranks' parameters, bit for bit; a rank that differs is named and gets rank 0's. 0: never"},
          0, k_any, &C::check_replicas_every_steps),
      number_key(
          {"timeout_seconds", Changes::nothing,
           "a collective that takes longer, or a rank that gets no further for as long, ends the run with exit code 4"},
          {0.0, 1e9, true}, &C::timeout_seconds),
      boolean_key({"allow_shared_device", Changes::nothing, "two ranks on one GPU are refused unless true"},
                  &C::allow_shared_device)};
}

}  // namespace onebatch
