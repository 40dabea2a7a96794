#include "trainer/io/pickled_tensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>

namespace onebatch {
namespace {

using Kind = PickledKind;
using Value = PickledValue;

constexpr std::int64_t k_deepest = 500;

struct StorageType {
  const char* name;
  std::uint64_t bytes;
};
constexpr std::array<StorageType, 23> k_types = {
    {{"torch DoubleStorage", 8},         {"torch FloatStorage", 4},        {"torch HalfStorage", 2},
     {"torch BFloat16Storage", 2},       {"torch LongStorage", 8},         {"torch IntStorage", 4},
     {"torch ShortStorage", 2},          {"torch CharStorage", 1},         {"torch ByteStorage", 1},
     {"torch BoolStorage", 1},           {"torch UInt16Storage", 2},       {"torch UInt32Storage", 4},
     {"torch UInt64Storage", 8},         {"torch ComplexHalfStorage", 4},  {"torch ComplexFloatStorage", 8},
     {"torch ComplexDoubleStorage", 16}, {"torch QInt8Storage", 1},        {"torch QUInt8Storage", 1},
     {"torch QInt32Storage", 4},         {"torch QUInt4x2Storage", 1},     {"torch QUInt2x4Storage", 1},
     {"torch Float8_e5m2Storage", 1},    {"torch Float8_e4m3fnStorage", 1}}};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("its pickle " + what);
}

const Value& item(const Value& tuple, std::size_t index, Kind kind) {
  if (tuple.kind != Kind::tuple || index >= tuple.items->size() || (*tuple.items)[index].kind != kind)
    fail("makes a tensor of something else");
  return (*tuple.items)[index];
}

// storage, offset, size, stride, …
void check_tensor(const Value& arguments) {
  const std::int64_t elements = item(arguments, 0, Kind::storage).number;
  const Value& size = item(arguments, 2, Kind::tuple);
  const Value& stride = item(arguments, 3, Kind::tuple);
  if (size.items->size() != stride.items->size()) fail("has a tensor of as many sizes as not strides");
  std::int64_t last = item(arguments, 1, Kind::integer).number;
  bool wrong = last < 0;
  bool empty = false;
  for (std::size_t i = 0; i < size.items->size(); ++i) {
    const std::int64_t count = item(size, i, Kind::integer).number;
    const std::int64_t step = item(stride, i, Kind::integer).number;
    std::int64_t reach = 0;
    wrong = wrong || count < 0 || step < 0 || (count > 0 && __builtin_mul_overflow(count - 1, step, &reach)) ||
            __builtin_add_overflow(last, reach, &last);
    empty = empty || count == 0;
  }
  if (wrong || (!empty && last >= elements)) fail("has a tensor that does not lie in its storage");
}

class PickleReader {
 public:
  explicit PickleReader(std::string_view pickle) : rest_(pickle), most_memos_(pickle.size()) {}

  PickledContent run() {
    if (take(2) != "\x80\x02") fail("is not of protocol 2");
    while (follow(take(1).front())) {
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("leaves more than one value");
    return {std::move(stack_.front()), std::move(storages_)};
  }

 private:
  std::string_view take(std::size_t bytes) {
    if (rest_.size() < bytes) fail("ends early");
    const auto taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }

  std::string line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) fail("ends early");
    const std::string text(take(end));
    take(1);
    return text;
  }

  void push(Value value) { stack_.push_back(std::move(value)); }
  void push(Kind kind) { push(Value{.kind = kind}); }
  void push(Kind kind, std::string text) { push(Value{.kind = kind, .text = std::move(text)}); }
  void push_integer(std::int64_t value) { push(Value{.kind = Kind::integer, .number = value}); }

  // Above the last mark.
  void need(std::size_t count) const {
    if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < count) fail("takes what is not there");
  }

  Value pop() {
    need(1);
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop_last(std::size_t count) {
    need(count);
    std::vector<Value> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) fail("takes what is not there");
    auto items = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_holding(Kind kind, std::vector<Value> items) {
    Value value{.kind = kind};
    deepen(value, items);
    value.items = std::make_shared<std::vector<Value>>(std::move(items));
    push(std::move(value));
  }

  // Taking apart what is nested takes as many calls.
  static void deepen(Value& value, const std::vector<Value>& items) {
    for (const Value& held : items) value.depth = std::max(value.depth, held.depth + 1);
    if (value.depth > k_deepest) fail("nests values too deep");
  }

  // What is remembered is complete: else it could come to hold itself.
  void check_top(Kind kind) const {
    need(1);
    if (stack_.back().kind != kind) fail("adds to what holds nothing");
    if (stack_.back().remembered && kind != Kind::global) fail("adds to what it has remembered");
  }

  void add_items(const std::vector<Value>& items) {
    check_top(Kind::list);
    deepen(stack_.back(), items);
    std::vector<Value>& held = *stack_.back().items;  // nobody else's
    held.insert(held.end(), items.begin(), items.end());
  }

  void add_pairs(const std::vector<Value>& items) {
    check_top(Kind::dict);
    if (items.size() % 2 != 0) fail("has a key without a value");
    deepen(stack_.back(), items);
  }

  void remember(std::size_t place) {
    need(1);
    if (place > most_memos_) fail("counts more values than it has bytes");
    stack_.back().remembered = true;
    memos_[place] = stack_.back();
  }

  void recall(std::size_t place) {
    const auto found = memos_.find(place);
    if (found == memos_.end()) fail("takes what is not there");
    push(found->second);
  }

  // A function or a class on what it is given.
  void call() {
    Value arguments = pop();
    const Value callee = pop();
    if (callee.kind != Kind::global) fail("calls what is no function");
    if (callee.text == "torch._utils _rebuild_tensor_v2" || callee.text == "torch._utils _rebuild_qtensor")
      check_tensor(arguments);
    if (callee.text == "torch.jit._pickle build_intlist") return push_integers(arguments);
    Value made;
    deepen(made, {std::move(arguments)});
    push(std::move(made));
  }

  void push_integers(const Value& arguments) {
    const Value& list = item(arguments, 0, Kind::list);
    for (const Value& held : *list.items) {
      if (held.kind != Kind::integer) fail("makes integers of something else");
    }
    push_holding(Kind::integers, *list.items);
  }

  // ("storage", type, key, device, elements)
  void push_storage() {
    const Value tuple = pop();
    const std::string& type = item(tuple, 1, Kind::global).text;
    const std::int64_t elements = item(tuple, 4, Kind::integer).number;
    std::uint64_t bytes = 0;
    for (const StorageType& known : k_types) {
      if (type == known.name) bytes = known.bytes;
    }
    if (item(tuple, 0, Kind::text).text != "storage" || bytes == 0)
      fail("has a storage of a type that is not read: " + type);
    if (elements < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(elements), &bytes))
      fail("has a storage of no size");
    storages_.push_back({item(tuple, 2, Kind::text).text, bytes});
    push(Value{.kind = Kind::storage, .number = elements});
  }

  // False at the end.
  bool follow(char operation) {
    switch (operation) {
      case '.': return false;
      case '(': marks_.push_back(stack_.size()); break;
      case ')': push_holding(Kind::tuple, {}); break;
      case ']': push_holding(Kind::list, {}); break;
      case '}': push(Kind::dict); break;
      case 'N': push(Kind::none); break;
      case '\x88':
      case '\x89': push(Kind::other); break;
      case 'K': push_integer(number<std::uint8_t>()); break;
      case 'M': push_integer(number<std::uint16_t>()); break;
      case 'J': push_integer(number<std::int32_t>()); break;
      case '\x8a':
        if (number<std::uint8_t>() != 8) fail("has an integer of other than 8 bytes");
        push_integer(number<std::int64_t>());
        break;
      case 'G': take(8), push(Kind::other); break;
      case 'X': push(Kind::text, std::string(take(number<std::uint32_t>()))); break;
      default: return follow_structure(operation);
    }
    return true;
  }

  bool follow_structure(char operation) {
    switch (operation) {
      case 'q': remember(number<std::uint8_t>()); break;
      case 'r': remember(number<std::uint32_t>()); break;
      case 'h': recall(number<std::uint8_t>()); break;
      case 'j': recall(number<std::uint32_t>()); break;
      case 't': push_holding(Kind::tuple, pop_to_mark()); break;
      case '\x85': push_holding(Kind::tuple, pop_last(1)); break;
      case '\x86': push_holding(Kind::tuple, pop_last(2)); break;
      case '\x87': push_holding(Kind::tuple, pop_last(3)); break;
      case 'l': push_holding(Kind::list, pop_to_mark()); break;
      case 'e': add_items(pop_to_mark()); break;
      case 'd': {
        const auto pairs = pop_to_mark();
        push(Kind::dict);
        add_pairs(pairs);
        break;
      }
      case 'u': add_pairs(pop_to_mark()); break;
      case 's': add_pairs(pop_last(2)); break;
      default: return follow_call(operation);
    }
    return true;
  }

  bool follow_call(char operation) {
    switch (operation) {
      case 'c': {
        const std::string module = line();
        push(Kind::global, module + " " + line());
        break;
      }
      case '\x81': pop(), check_top(Kind::global); break;  // its arguments; the call comes with its state
      case 'b':
      case 'R': call(); break;
      case 'Q': push_storage(); break;
      default: fail("has an operation that LibTorch does not write");
    }
    return true;
  }

  std::string_view rest_;
  std::size_t most_memos_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::size_t, Value> memos_;
  std::vector<PickledStorage> storages_;
};

}  // namespace

PickledContent read_pickle(std::string_view pickle) {
  return PickleReader(pickle).run();
}

}  // namespace onebatch
