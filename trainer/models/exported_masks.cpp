#include "trainer/models/exported_masks.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <span>

namespace onebatch {
namespace {

// Of aten::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, …).
constexpr const char* k_attention = "torch.ops.aten.scaled_dot_product_attention.default";
constexpr std::size_t k_mask = 3;
constexpr std::size_t k_is_causal = 5;
// Of these operators' first argument only the size, the type and the device are read.
constexpr std::array k_read_no_number = {"sym_size.int", "ones_like.", "zeros_like.", "full_like.",
                                         "new_ones.",    "new_zeros.", "new_full."};
// Sizes that are remembered: those of samples of unlike lengths are many.
constexpr std::size_t k_most_sizes = 4096;

// Nothing but numbers and what is in the set.
bool reads_only(const Operand& operand, const std::set<Slot>& slots) {
  if (operand.slot != k_no_slot) return slots.contains(operand.slot);
  const c10::IValue& value = operand.constant;
  const bool is_tensor = value.isTensor() && value.toTensor().defined();
  if (is_tensor && !value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) return false;
  return std::ranges::all_of(operand.items, [&](const Operand& item) { return reads_only(item, slots); });
}

bool reads_no_number(const Call& call) {
  return std::ranges::any_of(
      k_read_no_number, [&](const char* name) { return call.name.starts_with(std::string("torch.ops.aten.") + name); });
}

// A call that computes with the inputs' sizes and numbers alone; `slots`: what such calls have returned.
bool is_of_sizes(const Call& call, const std::vector<Slot>& inputs, const std::set<Slot>& slots) {
  if (!call.is_pure || call.region || call.results.size() != 1 || call.results[0].slot == k_no_slot) return false;
  const bool of_an_input = reads_no_number(call) && call.operands[0].form == Operand::Form::value &&
                           std::ranges::find(inputs, call.operands[0].slot) != inputs.end();
  const auto rest = std::span(call.operands).subspan(of_an_input ? 1 : 0);
  return std::ranges::all_of(rest, [&](const Operand& operand) { return reads_only(operand, slots); });
}

// As an input is, and without its numbers.
c10::IValue size_of(const at::Tensor& input) {
  return at::zeros({1}, input.options().device(c10::kCPU)).expand(input.sizes());
}

void note_slots(const Operand& operand, std::set<Slot>& slots) {
  if (operand.slot != k_no_slot) slots.insert(operand.slot);
  for (const Operand& item : operand.items) note_slots(item, slots);
}

bool makes_one_of(const Call& call, const std::set<Slot>& slots) {
  return std::ranges::any_of(call.results, [&](const Result& result) {
    return slots.contains(result.slot) ||
           std::ranges::any_of(result.items, [&](Slot item) { return slots.contains(item); });
  });
}

// Without those that may go and make none of these values, nor what the others read.
template <typename MayGo>
std::vector<Call> needed_for(std::set<Slot> read, const std::vector<Call>& calls, const MayGo& may_go) {
  std::vector<Call> needed;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    if (may_go(*call) && !makes_one_of(*call, read)) continue;
    for (const Operand& operand : call->operands) note_slots(operand, read);
    needed.push_back(*call);
  }
  std::ranges::reverse(needed);
  return needed;
}

}  // namespace

AttentionMasks::AttentionMasks(const Block& program, const RunMode& mode) : program_(program), mode_(mode) {
  std::set<Slot> wanted;
  masks_.num_slots = program.num_slots;
  masks_.inputs = program.inputs;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    if (is_of_sizes(call, program.inputs, of_sizes_)) of_sizes_.insert(call.results[0].slot);
    if (!call.name.starts_with(k_attention)) continue;
    const Operand& mask = call.operands[k_mask];
    if (mask.form != Operand::Form::value || !of_sizes_.contains(mask.slot)) continue;
    attentions_.push_back(i);
    masks_.outputs.push_back(mask);
    wanted.insert(mask.slot);
  }
  masks_.calls = needed_for(std::move(wanted), program.calls, [](const Call&) { return true; });
  note_last_readers(masks_);
  follow_mode();
}

void AttentionMasks::follow_mode() {
  RunMode on_cpu = mode_;
  on_cpu.device = c10::kCPU;
  follow(masks_, on_cpu);
  forms_.clear();
  blocks_.clear();
}

const Block& AttentionMasks::block_for(const std::vector<at::Tensor>& inputs) {
  if (attentions_.empty()) return program_;
  Sizes sizes;
  for (const at::Tensor& input : inputs) std::ranges::copy(input.sizes(), std::back_inserter(sizes));
  auto known = forms_.find(sizes);
  if (known == forms_.end()) {
    if (forms_.size() == k_most_sizes) forms_.clear();
    known = forms_.emplace(std::move(sizes), forms_for(inputs)).first;
  }
  const Forms& forms = known->second;
  if (std::ranges::all_of(forms, [](Form form) { return form == Form::as_written; })) return program_;
  auto block = blocks_.find(forms);
  if (block == blocks_.end()) {
    block = blocks_.emplace(forms, without_masks(forms)).first;
    follow(block->second, mode_);
  }
  return block->second;
}

AttentionMasks::Forms AttentionMasks::forms_for(const std::vector<at::Tensor>& inputs) const {
  const at::NoGradGuard no_grad;
  // Nothing of the model's step: those who watch that do not see it.
  const c10::impl::ExcludeDispatchKeyGuard unwatched(c10::DispatchKey::TESTING_ONLY_GenericMode);
  std::vector<c10::IValue> sizes;
  std::ranges::transform(inputs, std::back_inserter(sizes), size_of);
  Forms forms;
  for (const c10::IValue& mask : masks_.run(std::move(sizes))) forms.push_back(form_of(mask.toTensor()));
  return forms;
}

AttentionMasks::Form AttentionMasks::form_of(const at::Tensor& mask) {
  if (mask.scalar_type() != at::kBool || mask.dim() < 2) return Form::as_written;
  if (mask.all().item<bool>()) return Form::all_true;
  if (mask.size(-2) == 1) return Form::as_written;  // of every query alike
  const at::Tensor causal = at::ones({mask.size(-2), mask.size(-1)}, mask.options()).tril();
  return mask.eq(causal).all().item<bool>() ? Form::causal : Form::as_written;
}

Block AttentionMasks::without_masks(const Forms& forms) const {
  Block block = program_;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (forms[i] == Form::as_written) continue;
    Call& attention = block.calls[attentions_[i]];
    attention.operands[k_mask] = {};
    if (forms[i] == Form::causal) attention.operands[k_is_causal].constant = true;
  }
  std::set<Slot> returned;
  for (const Operand& output : block.outputs) note_slots(output, returned);
  block.calls =
      needed_for(std::move(returned), block.calls, [&](const Call& call) { return makes_one_of(call, of_sizes_); });
  note_last_readers(block);
  return block;
}

}  // namespace onebatch
