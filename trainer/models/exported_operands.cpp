#include "trainer/models/exported_operands.hpp"

#include "trainer/models/exported_schema.hpp"

#include <ATen/ScalarOps.h>

namespace onebatch {
namespace {

using c10::IValue;
using c10::TypeKind;
using Form = Operand::Form;

Operand constant(IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

double number_in(const JsonReader& value) {
  if (value.json().is_number()) return value.json().get<double>();
  // JSON has no infinity: the schema writes a word.
  const std::string word = value.text();
  if (word == "Infinity" || word == "inf") return HUGE_VAL;
  if (word == "-Infinity" || word == "-inf") return -HUGE_VAL;
  if (word == "NaN" || word == "nan") return std::nan("");
  value.fail("is no number");
}

// Of a symbolic number: {"as_name": "sym_size_int"} or a plain one.
Operand symbolic(const JsonReader& argument, const GraphNames& names) {
  const auto [tag, value] = tagged(argument);
  if (tag == "as_name") return names.read(value.text(), argument);
  if (tag == "as_int") return constant(value.integer(INT64_MIN, INT64_MAX));
  if (tag == "as_float") return constant(number_in(value));
  if (tag == "as_bool") return constant(value.boolean());
  argument.fail("is a symbolic number of the form \"" + tag + "\", which is not known");
}

Operand tensor_item(const JsonReader& item, const GraphNames& names) {
  if (item.has("name")) return names.read(item.field("name").text(), item);
  const auto [tag, value] = tagged(item);
  if (tag == "as_none") return {};
  if (tag == "as_tensor") return names.read(value.field("name").text(), item);
  item.fail("is a tensor of the form \"" + tag + "\", which is not known");
}

template <typename Of>
Operand list(Form form, const JsonReader& values, const Of& of) {
  Operand operand;
  operand.form = form;
  for (std::size_t i = 0; i < values.array_size("values"); ++i) operand.items.push_back(of(values.item(i)));
  return operand;
}

Operand complex_number(const JsonReader& value) {
  return constant(c10::complex<double>(number_in(value.field("real")), number_in(value.field("imag"))));
}

Operand single(const std::string& tag, const JsonReader& value, const GraphNames& names) {
  if (tag == "as_none") return {};
  if (tag == "as_tensor") return names.read(value.field("name").text(), value);
  if (tag == "as_optional_tensor") return tensor_item(value, names);
  if (tag == "as_int") return constant(value.integer(INT64_MIN, INT64_MAX));
  if (tag == "as_float") return constant(number_in(value));
  if (tag == "as_bool") return constant(value.boolean());
  if (tag == "as_string") return constant(value.text());
  if (tag == "as_complex") return complex_number(value);
  if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") return symbolic(value, names);
  if (tag == "as_scalar_type") return constant(static_cast<std::int64_t>(scalar_type_in(value)));
  if (tag == "as_memory_format") return constant(static_cast<std::int64_t>(memory_format_in(value)));
  if (tag == "as_layout") return constant(static_cast<std::int64_t>(layout_in(value)));
  if (tag == "as_device") {
    Operand operand = constant(c10::Device(c10::kCPU));
    operand.follows = Follows::device;
    return operand;
  }
  value.fail("has the form \"" + tag + "\", which is not known");
}

Operand numbers_of(const std::string& tag, const JsonReader& value, const GraphNames& names) {
  if (tag == "as_ints")
    return list(Form::integers, value,
                [](const JsonReader& one) { return constant(one.integer(INT64_MIN, INT64_MAX)); });
  if (tag == "as_floats")
    return list(Form::numbers, value, [](const JsonReader& one) { return constant(number_in(one)); });
  if (tag == "as_bools")
    return list(Form::booleans, value, [](const JsonReader& one) { return constant(one.boolean()); });
  const Form form = tag == "as_sym_ints" ? Form::integers : (tag == "as_sym_floats" ? Form::numbers : Form::booleans);
  return list(form, value, [&](const JsonReader& one) { return symbolic(one, names); });
}

Operand any(const JsonReader& argument, const GraphNames& names) {
  const auto [tag, value] = tagged(argument);
  if (tag == "as_tensors" || tag == "as_optional_tensors")
    return list(tag == "as_tensors" ? Form::tensors : Form::optional_tensors, value,
                [&](const JsonReader& one) { return tensor_item(one, names); });
  if (tag == "as_ints" || tag == "as_floats" || tag == "as_bools" || tag == "as_sym_ints" || tag == "as_sym_floats" ||
      tag == "as_sym_bools")
    return numbers_of(tag, value, names);
  return single(tag, value, names);
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
}

// The form that the schema's list has, whatever the program's is: an empty list may be of any.
Form form_of(const c10::Type& element, const JsonReader& argument) {
  switch (element.kind()) {
    case TypeKind::TensorType: return Form::tensors;
    case TypeKind::OptionalType: return Form::optional_tensors;
    case TypeKind::IntType:
    case TypeKind::SymIntType: return Form::integers;
    case TypeKind::FloatType: return Form::numbers;
    case TypeKind::BoolType: return Form::booleans;
    default: argument.fail("is a list of " + element.str() + ", which is not known");
  }
}

// A list without slots is made once.
void fold(Operand& operand) {
  for (const Operand& item : operand.items) {
    if (item.form != Form::constant) return;
  }
  if (operand.form == Form::integers) {
    std::vector<std::int64_t> values;
    for (const Operand& item : operand.items) values.push_back(item.constant.toInt());
    operand = constant(values);
  } else if (operand.form == Form::numbers) {
    std::vector<double> values;
    for (const Operand& item : operand.items) values.push_back(item.constant.toScalar().toDouble());
    operand = constant(values);
  }
}

void fit_list(const c10::Argument& due, const c10::ListType& type, const JsonReader& argument, Operand& operand) {
  const Form form = form_of(*type.getElementType(), argument);
  if (operand.form == Form::constant || operand.form == Form::value) {  // one number for all
    const bool fits = form == Form::integers && (operand.form == Form::value || operand.constant.isInt());
    if (!fits) argument.fail("is no list, as " + due.name() + " is");
    Operand whole;
    whole.items.assign(static_cast<std::size_t>(due.N().value_or(1)), operand);
    operand = std::move(whole);
    operand.form = form;
  }
  const bool tensors = form == Form::tensors || form == Form::optional_tensors;
  for (const Operand& item : operand.items) {
    const IValue& value = item.constant;
    if (item.form == Form::value) continue;
    const bool fits = tensors ? value.isTensor() || (form == Form::optional_tensors && value.isNone())
                              : (form == Form::booleans ? value.isBool()
                                                        : value.isInt() || (form == Form::numbers && value.isDouble()));
    if (!fits) argument.fail("holds what " + due.name() + " does not");
  }
  operand.form = form;
  fold(operand);
}

void fit_single(const c10::Argument& due, const c10::TypePtr& type, const JsonReader& argument, Operand& operand) {
  const bool wants_tensor = type->kind() == TypeKind::TensorType;
  IValue& value = operand.constant;
  if (operand.form == Form::value) {
    const std::string tag = tagged(argument).tag;
    const bool is_number = tag.starts_with("as_sym_");
    if (wants_tensor && is_number) operand.form = Form::number_tensor;
    if (!wants_tensor && !is_number) argument.fail("is a tensor, and " + due.name() + " is none");
    return;
  }
  if (wants_tensor && value.isScalar()) value = at::native::wrapped_scalar_tensor(value.toScalar());
  if (type->kind() == TypeKind::FloatType && value.isInt()) value = static_cast<double>(value.toInt());
  if (type->kind() == TypeKind::FloatType && value.isBool()) value = value.toBool() ? 1.0 : 0.0;
  if (type->kind() == TypeKind::NumberType && value.isBool()) return;
  if (wants_tensor && value.isTensor()) return;
  if (operand.follows == Follows::device && type->kind() == TypeKind::DeviceObjType) return;
  if (!value.type()->isSubtypeOf(*type))
    argument.fail("is " + value.type()->annotation_str() + ", and " + due.name() + " is " + type->annotation_str());
}

}  // namespace

Operand operand_for(const c10::Argument& due, const JsonReader& argument, const GraphNames& names) {
  Operand operand = any(argument, names);
  const c10::TypePtr type = without_optional(due.type());
  if (operand.form == Form::constant && operand.constant.isNone()) {
    if (due.type()->kind() != TypeKind::OptionalType && type->kind() != TypeKind::TensorType)
      argument.fail("is None, and " + due.name() + " is not optional");
    if (due.type()->kind() != TypeKind::OptionalType) operand.constant = at::Tensor();
    return operand;
  }
  if (const auto* of_list = type->castRaw<c10::ListType>())
    fit_list(due, *of_list, argument, operand);
  else if (!operand.items.empty() || operand.form >= Form::integers)
    argument.fail("is a list, and " + due.name() + " is none");
  else
    fit_single(due, type, argument, operand);
  return operand;
}

Operand operand_of(const JsonReader& argument, const GraphNames& names) {
  return any(argument, names);
}

}  // namespace onebatch
